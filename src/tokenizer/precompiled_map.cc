#include "tokenizer/precompiled_map.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenizer/code_point_ranges.h"
#include "tokenizer/range_data.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

tl::unexpected<Error> Damaged(std::string_view what) {
  return Fail(ErrorCode::kInvalidData, fmt::format("precompiled_charsmap: {}", what),
              "precompiled_charsmap");
}

// Returns nullopt if the text is not padded Base64.
std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    int digits = 0;
    for (size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                        : c >= 'a' && c <= 'z' ? c - 'a' + 26
                        : c >= '0' && c <= '9' ? c - '0' + 52
                        : c == '+'             ? 62
                        : c == '/'             ? 63
                                               : -1;
      const bool is_padding = c == '=' && i + 4 == text.size() && k >= 2;
      if (value < 0 && !is_padding) return std::nullopt;
      if (value >= 0 && digits < static_cast<int>(k)) return std::nullopt;  // a digit after padding
      if (value >= 0) ++digits;
      group = group << 6 | static_cast<uint32_t>(std::max(value, 0));
    }
    for (int k = 0; k < digits - 1; ++k) out.push_back(static_cast<char>(group >> (16 - 8 * k)));
  }
  return out;
}

uint32_t LittleEndian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t k = 4; k-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + k]);
  return value;
}

// Grapheme cluster properties. Leaves out rules that only matter in clusters of 6 bytes or more,
// because those are normalized character by character.
enum class Part { kOther, kCr, kControl, kExtend, kPrepend, kLead, kVowel, kTail, kSyllable };

Part PartOf(char32_t c) {
  if (c == '\r') return Part::kCr;
  if (unicode::IsInRanges(range_data::kExtends, range_data::kExtendsSize, c)) return Part::kExtend;
  constexpr std::array<char32_t, 11> kPrepends = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605,
                                                  0x6DD, 0x70F, 0x890, 0x891, 0x8E2};
  if (std::find(kPrepends.begin(), kPrepends.end(), c) != kPrepends.end() || c == 0xD4E)
    return Part::kPrepend;
  switch (unicode::Properties(c) & unicode::kCategoryMask) {
    case unicode::kCc:
    case unicode::kCf:
    case unicode::kZl:
    case unicode::kZp: return Part::kControl;
    default: break;
  }
  if ((c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C)) return Part::kLead;
  if ((c >= 0x1160 && c <= 0x11A7) || (c >= 0xD7B0 && c <= 0xD7C6)) return Part::kVowel;
  if ((c >= 0x11A8 && c <= 0x11FF) || (c >= 0xD7CB && c <= 0xD7FB)) return Part::kTail;
  if (c >= 0xAC00 && c <= 0xD7A3) return Part::kSyllable;
  return Part::kOther;
}

// Whether two adjacent characters belong to the same cluster.
bool AreTogether(Part before, char32_t last, Part after, char32_t next) {
  if (before == Part::kCr) return next == '\n';
  if (before == Part::kControl || after == Part::kControl || after == Part::kCr) return false;
  if (after == Part::kExtend || before == Part::kPrepend) return true;
  if (before == Part::kLead)
    return after == Part::kLead || after == Part::kVowel || after == Part::kSyllable;
  // A Hangul syllable without a tail joins a following vowel or tail; one with a tail joins another
  // tail.
  const bool has_tail =
      before == Part::kTail || (before == Part::kSyllable && (last - 0xAC00) % 28 != 0);
  if (has_tail) return after == Part::kTail;
  return (before == Part::kVowel || before == Part::kSyllable) &&
         (after == Part::kVowel || after == Part::kTail);
}

// Returns the number of bytes of the cluster at the start of `text`.
size_t ClusterSize(std::string_view text) {
  unicode::Decoded last = unicode::Decode(text.data());
  Part before = PartOf(last.code_point);
  size_t size = last.length;
  while (size < text.size()) {
    const unicode::Decoded next = unicode::Decode(text.data() + size);
    const Part after = PartOf(next.code_point);
    if (!AreTogether(before, last.code_point, after, next.code_point)) break;
    size += next.length;
    last = next;
    before = after;
  }
  return size;
}

}  // namespace

Result<PrecompiledMap> PrecompiledMap::Create(std::string_view base64) {
  PrecompiledMap map;
  if (base64.empty()) return map;
  const std::optional<std::string> bytes = DecodeBase64(base64);
  if (!bytes) return Damaged("must be base64");
  if (bytes->size() < 4) return Damaged("has no size");
  const uint32_t size = LittleEndian(*bytes, 0);
  if (size % 4 != 0 || size > bytes->size() - 4)
    return Damaged(fmt::format("names a table of {} bytes, {} follow", size, bytes->size() - 4));
  for (size_t at = 4; at < size + size_t{4}; at += 4)
    map.units_.push_back(LittleEndian(*bytes, at));
  map.texts_ = bytes->substr(size + size_t{4});
  if (!IsValidUtf8(map.texts_)) return Damaged("the replacements are not UTF-8");
  for (size_t begin = 0; begin < map.texts_.size();) {
    const size_t end = std::min(map.texts_.find('\0', begin), map.texts_.size());
    map.longest_ = std::max(map.longest_, end - begin);
    begin = end + 1;
  }
  return map;
}

std::optional<std::string_view> PrecompiledMap::Find(std::string_view chunk) const {
  const auto offset_of = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  if (units_.empty()) return std::nullopt;
  size_t place = offset_of(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    place ^= byte;
    if (place >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[place];
    if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
    place ^= offset_of(unit);
    if ((unit >> 8 & 1) == 0) continue;
    if (place >= units_.size()) return std::nullopt;
    const size_t begin = units_[place] & 0x7FFFFFFF;
    // An offset into the middle of a character shows that the map is damaged.
    if (begin > texts_.size() || (begin < texts_.size() && (texts_[begin] & 0xC0) == 0x80))
      return std::nullopt;
    return std::string_view(texts_).substr(
        begin, std::min(texts_.find('\0', begin), texts_.size()) - begin);
  }
  return std::nullopt;
}

std::string PrecompiledMap::Normalize(std::string_view text) const {
  constexpr size_t kLargeCluster = 6;
  std::string out;
  out.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = begin + ClusterSize(text.substr(begin));
    if (end - begin < kLargeCluster) {
      if (const auto replacement = Find(text.substr(begin, end - begin))) {
        out.append(*replacement);
        begin = end;
        continue;
      }
    }
    while (begin < end) {
      const std::string_view character = text.substr(begin, unicode::SequenceLength(text[begin]));
      out.append(Find(character).value_or(character));
      begin += character.size();
    }
  }
  return out;
}

}  // namespace sluice
