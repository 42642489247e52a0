// The generated tables behind unicode.h and normal_form.h
// (tools/tokenizers/make_unicode_tables.py).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::unicode_data {

// Runs of equal properties: first code point << 11 | properties. Bits 0 to 4 of the properties are
// the general category in the regex engine (Unicode 16, numbered as in unicode.h). Each further bit
// is a property: 5 \s, 6 \w of split patterns, 7 \w of whole-word matching, 8 numeric (Digits), 9
// punctuation (Punctuation), 10 removed by StripAccents.
extern const uint32_t kProperties[];
extern const size_t kPropertiesSize;

// Entries: code point << 3 | length, then that many code points.
extern const uint32_t kLowercase[];
extern const size_t kLowercaseSize;

// Entries: code point << 5 | length, then that many code points. Full decompositions, without
// Hangul syllables.
extern const uint32_t kCanonical[];
extern const size_t kCanonicalSize;
extern const uint32_t kCompatible[];  // Only entries that differ from kCanonical.
extern const size_t kCompatibleSize;

// Triples: first, second, and their composition.
extern const uint32_t kCompositions[];
extern const size_t kCompositionsSize;

// Runs of equal canonical combining class; each entry is first code point << 8 | class.
extern const uint32_t kCombiningClasses[];
extern const size_t kCombiningClassesSize;

// The ranges of a script: first and last code points alternate.
struct Script {
  const char* name;
  const uint32_t* ranges;
  size_t size;
};
extern const Script kScripts[];
extern const size_t kScriptsSize;

}  // namespace sluice::unicode_data
