#include "tokenizer/split_scanner.h"

namespace sluice {

std::optional<SplitPattern> RecognizeSplitPattern(std::string_view regex) {
  struct Known {
    std::string_view regex;
    SplitPattern pattern;
  };
#define SLUICE_WORDS(suffix)                                                               \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" suffix \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" suffix
  static constexpr Known kKnown[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       SplitPattern::kGpt2},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       SplitPattern::kGpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       SplitPattern::kLlama3},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       SplitPattern::kQwen},
      {SLUICE_WORDS(
           "(?i:'s|'t|'re|'ve|'m|'ll|'d)?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       SplitPattern::kLlama4},
      {SLUICE_WORDS("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       SplitPattern::kTekken},
  };
#undef SLUICE_WORDS
  for (const Known& known : kKnown) {
    if (known.regex == regex) return known.pattern;
  }
  return std::nullopt;
}

namespace scanner_internal {

const uint8_t* ClassTable() {
  static const uint8_t* const table = [] {
    auto* classes =
        new uint8_t[unicode::kMaxCodePoint + 1];  // Never freed: used until the last thread ends.
    const uint16_t* properties = unicode::PropertyTable();
    for (size_t c = 0; c <= unicode::kMaxCodePoint; ++c) {
      uint8_t bits = 0;
      switch (properties[c] & unicode::kCategoryMask) {
        case unicode::kLu:
        case unicode::kLt: bits = kUpperLike | kLetter; break;
        case unicode::kLl: bits = kLowerLike | kLetter; break;
        case unicode::kLm:
        case unicode::kLo: bits = kUpperLike | kLowerLike | kLetter; break;
        case unicode::kMn:
        case unicode::kMc:
        case unicode::kMe: bits = kUpperLike | kLowerLike; break;
        case unicode::kNd:
        case unicode::kNl:
        case unicode::kNo: bits = kNumber; break;
        default: break;
      }
      if (properties[c] & unicode::kSpace) bits |= kSpace;
      if (!(bits & (kLetter | kNumber | kSpace))) bits |= kVisible;
      classes[c] = bits;
    }
    classes[uint8_t{'\r'}] |= kNewline;
    classes[uint8_t{'\n'}] |= kNewline;
    return classes;
  }();
  return table;
}

}  // namespace scanner_internal
}  // namespace sluice
