// UTF-8, and the properties of code points that tokenizers use.
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

// General categories of the Unicode Standard, in the numbering of the generated tables.
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
// Two-letter name of a category ("Lu").
std::string_view CategoryName(Category category);

// Properties of a code point, as bits above its category. They come from different versions of
// Unicode, like those in Hugging Face `tokenizers`, so that results are the same.
inline constexpr uint16_t kCategoryMask = 0x1F;
inline constexpr uint16_t kSpace = 1 << 5;      // White_Space.
inline constexpr uint16_t kRegexWord = 1 << 6;  // \w in a split pattern.
inline constexpr uint16_t kWord = 1 << 7;  // \w for single_word and the Whitespace pre-tokenizer.
inline constexpr uint16_t kNumeric = 1 << 8;      // For the Digits pre-tokenizer.
inline constexpr uint16_t kPunctuation = 1 << 9;  // For the Punctuation pre-tokenizer.
inline constexpr uint16_t kAccent = 1 << 10;      // Removed by StripAccents.

// kMaxCodePoint + 1 entries; built once, never freed.
const uint16_t* PropertyTable();
inline uint16_t Properties(char32_t c) {
  return PropertyTable()[c];
}

// Sorted, disjoint, inclusive ranges of code points.
using Ranges = std::vector<std::pair<char32_t, char32_t>>;
// The code points of a script ("Han"); empty if the name is unknown.
Ranges ScriptRanges(std::string_view name);

// A code point of valid UTF-8. REQUIRES: p points at the start of a complete sequence.
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
// Number of bytes of the code point that starts with this byte of valid UTF-8.
inline uint32_t SequenceLength(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
// The last code point of non-empty valid UTF-8.
Decoded DecodeLast(std::string_view text);
// The code point of a text that consists of only one.
std::optional<char32_t> OnlyCodePoint(std::string_view text);
std::u32string ToCodePoints(std::string_view text);
std::string ToUtf8(std::u32string_view text);

bool IsAscii(std::string_view text);
// Appends `bytes`, with one U+FFFD for each maximal invalid part.
void AppendLossy(std::string& out, std::string_view bytes);
// Converts each code point to lower case, independently of its neighbours.
std::string Lowercase(std::string_view text);

}  // namespace sluice::unicode
