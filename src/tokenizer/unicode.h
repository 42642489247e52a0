// UTF-8 decoding, and the properties of code points that tokenizers use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::unicode {

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// General categories of the Unicode Standard, numbered as in the generated tables.
enum Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs,
  kNumCategories
};
// Returns the two-letter name of a category ("Lu").
std::string_view CategoryName(Category category);

// Properties of a code point, as bits above its category. They come from different versions of
// Unicode, the same as in Hugging Face `tokenizers`, so that results are the same.
inline constexpr uint16_t kCategoryMask = 0x1F;
inline constexpr uint16_t kSpace = 1 << 5;      // The property White_Space.
inline constexpr uint16_t kRegexWord = 1 << 6;  // Matches \w in a split pattern.
inline constexpr uint16_t kWord = 1 << 7;       // Matches \w for single_word and for the Whitespace
                                                // pre-tokenizer.
inline constexpr uint16_t kNumeric = 1 << 8;    // Counts as a digit for the Digits pre-tokenizer.
inline constexpr uint16_t kPunctuation = 1 << 9;  // Counts as punctuation for the Punctuation
                                                  // pre-tokenizer.
inline constexpr uint16_t kAccent = 1 << 10;      // StripAccents removes it.

// Returns a table with kMaxCodePoint + 1 entries; built once, never freed.
const uint16_t* PropertyTable();
inline uint16_t Properties(char32_t c) {
  return PropertyTable()[c];
}

// Sorted, disjoint, inclusive ranges of code points.
using Ranges = std::vector<std::pair<char32_t, char32_t>>;
// Returns the code points of a script ("Han"); empty if the name is unknown.
Ranges ScriptRanges(std::string_view name);

// Decodes a code point of valid UTF-8. REQUIRES: p points at the start of a complete sequence.
struct Decoded {
  char32_t code_point;
  uint32_t length;
};
inline Decoded Decode(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}
// Returns the size of the sequence that starts with this byte of valid UTF-8.
inline uint32_t SequenceLength(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// Decodes the last code point of a text. REQUIRES: valid UTF-8, not empty.
Decoded DecodeLast(std::string_view text);
// Returns the code point of a text that consists of exactly one.
std::optional<char32_t> OnlyCodePoint(std::string_view text);
std::u32string ToCodePoints(std::string_view text);
std::string ToUtf8(std::u32string_view text);

bool IsAscii(std::string_view text);
// Appends `bytes`, replacing each maximal invalid part by one U+FFFD.
void AppendLossy(std::string& out, std::string_view bytes);
// Converts each code point to lower case, independently of its neighbors.
std::string Lowercase(std::string_view text);

}  // namespace sluice::unicode
