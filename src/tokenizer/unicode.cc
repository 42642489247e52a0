#include "tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/utf8.h"
#include "tokenizer/unicode_data.h"

namespace sluice::unicode {

std::string_view CategoryName(Category category) {
  static constexpr std::string_view kNames[] = {
      "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};
  static_assert(std::size(kNames) == kNumCategories);
  return kNames[category];
}

const uint16_t* PropertyTable() {
  static const uint16_t* const table = [] {
    auto* properties =
        new uint16_t[kMaxCodePoint + 1];  // Never freed: used until the last thread ends.
    for (size_t i = 0; i < unicode_data::kPropertiesSize; ++i) {
      const uint32_t first = unicode_data::kProperties[i] >> 11;
      const uint32_t end = i + 1 < unicode_data::kPropertiesSize
                               ? unicode_data::kProperties[i + 1] >> 11
                               : kMaxCodePoint + 1;
      std::fill(properties + first, properties + end,
                static_cast<uint16_t>(unicode_data::kProperties[i] & 0x7FF));
    }
    return properties;
  }();
  return table;
}

Ranges ScriptRanges(std::string_view name) {
  Ranges ranges;
  for (size_t i = 0; i < unicode_data::kScriptsSize; ++i) {
    const unicode_data::Script& script = unicode_data::kScripts[i];
    if (name != script.name) continue;
    for (size_t k = 0; k < script.size; k += 2)
      ranges.emplace_back(script.ranges[k], script.ranges[k + 1]);
  }
  return ranges;
}

Decoded DecodeLast(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return Decode(text.data() + start);
}

std::optional<char32_t> OnlyCodePoint(std::string_view text) {
  if (text.empty() || SequenceLength(text[0]) != text.size()) return std::nullopt;
  return Decode(text.data()).code_point;
}

std::u32string ToCodePoints(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Decoded decoded = Decode(text.data() + i);
    out.push_back(decoded.code_point);
    i += decoded.length;
  }
  return out;
}

std::string ToUtf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(out, c);
  return out;
}

bool IsAscii(std::string_view text) {
  uint64_t bits = 0;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    bits |= word;
  }
  for (; i < text.size(); ++i) bits |= static_cast<unsigned char>(text[i]);
  return (bits & 0x8080808080808080) == 0;
}

void AppendLossy(std::string& out, std::string_view bytes) {
  if (IsValidUtf8(bytes)) {
    out.append(bytes);
    return;
  }
  while (!bytes.empty()) {
    const Utf8Sequence first = FirstUtf8Sequence(bytes);
    out.append(first.valid ? bytes.substr(0, first.size) : kReplacement);
    bytes.remove_prefix(first.size);
  }
}

std::string Lowercase(std::string_view text) {
  // For each code point with a lowercase mapping, in code point order: its position in kLowercase.
  static const std::vector<std::pair<char32_t, uint32_t>> index = [] {
    std::vector<std::pair<char32_t, uint32_t>> entries;
    for (uint32_t i = 0; i < unicode_data::kLowercaseSize;
         i += 1 + (unicode_data::kLowercase[i] & 7)) {
      entries.emplace_back(unicode_data::kLowercase[i] >> 3, i);
    }
    return entries;
  }();
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      out.push_back(static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte));
      ++i;
      continue;
    }
    const Decoded decoded = Decode(text.data() + i);
    const auto entry = std::lower_bound(index.begin(), index.end(),
                                        std::pair<char32_t, uint32_t>(decoded.code_point, 0));
    if (entry != index.end() && entry->first == decoded.code_point) {
      const uint32_t* data = unicode_data::kLowercase + entry->second;
      for (uint32_t k = 1; k <= (data[0] & 7); ++k) AppendUtf8(out, data[k]);
    } else {
      out.append(text.substr(i, decoded.length));
    }
    i += decoded.length;
  }
  return out;
}

}  // namespace sluice::unicode
