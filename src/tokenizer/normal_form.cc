#include "tokenizer/normal_form.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_data.h"

namespace sluice::unicode {
namespace {

namespace data = unicode_data;

// Hangul syllables compose by arithmetic (Unicode Standard, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTailBase = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

struct Tables {
  std::vector<uint8_t> combining_class;  // Indexed by code point.
  std::unordered_map<char32_t, const uint32_t*> canonical, compatible;
  std::unordered_map<uint64_t, char32_t> compositions;  // The key is first << 32 | second.
  std::vector<uint8_t> changes;  // Indexed by code point: a bit for each form that may change a
                                 // text with this code point.

  Tables() : combining_class(kMaxCodePoint + 1), changes(kMaxCodePoint + 1) {
    for (size_t i = 0; i < data::kCombiningClassesSize; ++i) {
      const uint32_t first = data::kCombiningClasses[i] >> 8;
      const uint32_t end = i + 1 < data::kCombiningClassesSize ? data::kCombiningClasses[i + 1] >> 8
                                                               : kMaxCodePoint + 1;
      std::fill(combining_class.begin() + first, combining_class.begin() + end,
                static_cast<uint8_t>(data::kCombiningClasses[i] & 0xFF));
    }
    for (size_t c = 0; c <= kMaxCodePoint; ++c) changes[c] = combining_class[c] != 0 ? 15 : 0;
    for (size_t i = 0; i < data::kCanonicalSize; i += 1 + (data::kCanonical[i] & 31)) {
      canonical[data::kCanonical[i] >> 5] = data::kCanonical + i;
      changes[data::kCanonical[i] >> 5] |= 15;
    }
    for (size_t i = 0; i < data::kCompatibleSize; i += 1 + (data::kCompatible[i] & 31)) {
      compatible[data::kCompatible[i] >> 5] = data::kCompatible + i;
      changes[data::kCompatible[i] >> 5] |= Bit(NormalForm::kNfkc) | Bit(NormalForm::kNfkd);
    }
    for (size_t i = 0; i < data::kCompositionsSize; i += 3) {
      const uint32_t* triple = data::kCompositions + i;
      compositions[uint64_t{triple[0]} << 32 | triple[1]] = triple[2];
      changes[triple[1]] |= 15;
      // NFC leaves a composite character unchanged.
      changes[triple[2]] &= static_cast<uint8_t>(~Bit(NormalForm::kNfc));
    }
    for (size_t i = 0; i < data::kCompositionsSize; i += 3)
      changes[data::kCompositions[i + 1]] |= 15;
    for (char32_t c = kSyllableBase; c < kSyllableBase + kSyllables; ++c) {
      changes[c] |= Bit(NormalForm::kNfd) | Bit(NormalForm::kNfkd);
    }
    for (char32_t c = kVowelBase; c < kVowelBase + kVowels; ++c) changes[c] |= 15;
    for (char32_t c = kTailBase + 1; c < kTailBase + kTails; ++c) changes[c] |= 15;
  }

  static constexpr uint8_t Bit(NormalForm form) {
    return static_cast<uint8_t>(1 << static_cast<int>(form));
  }
};

const Tables& GetTables() {
  static const Tables* const tables = new Tables;  // Never freed: used until the last thread ends.
  return *tables;
}

void Decompose(const Tables& tables, char32_t c, bool compatibility, std::u32string& out) {
  if (c >= kSyllableBase && c < kSyllableBase + kSyllables) {
    const uint32_t index = c - kSyllableBase;
    out.push_back(kLeadBase + index / (kVowels * kTails));
    out.push_back(kVowelBase + index % (kVowels * kTails) / kTails);
    if (index % kTails != 0) out.push_back(kTailBase + index % kTails);
    return;
  }
  const uint32_t* entry = nullptr;
  if (compatibility) {
    if (const auto found = tables.compatible.find(c); found != tables.compatible.end())
      entry = found->second;
  }
  if (entry == nullptr) {
    if (const auto found = tables.canonical.find(c); found != tables.canonical.end())
      entry = found->second;
  }
  if (entry == nullptr) {
    out.push_back(c);
    return;
  }
  for (uint32_t i = 1; i <= (entry[0] & 31); ++i) out.push_back(entry[i]);
}

// Sorts each run of combining marks by combining class.
void Reorder(const Tables& tables, std::u32string& text) {
  const auto by_class = [&tables](char32_t a, char32_t b) {
    return tables.combining_class[a] < tables.combining_class[b];
  };
  for (size_t i = 0; i < text.size();) {
    if (tables.combining_class[text[i]] == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && tables.combining_class[text[end]] != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i),
                     text.begin() + static_cast<ptrdiff_t>(end), by_class);
    i = end;
  }
}

// Returns the composition of `first` and `second`; 0 if there is none.
char32_t ComposePair(const Tables& tables, char32_t first, char32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kSyllableBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  }
  if (first - kSyllableBase < kSyllables && (first - kSyllableBase) % kTails == 0 &&
      second > kTailBase && second < kTailBase + kTails) {
    return first + (second - kTailBase);
  }
  const auto found = tables.compositions.find(uint64_t{first} << 32 | second);
  return found == tables.compositions.end() ? 0 : found->second;
}

void Compose(const Tables& tables, std::u32string& text) {
  size_t out = 0;
  size_t starter = std::u32string::npos;  // Index in the output of the last starter.
  int last_class = -1;  // Combining class of the last mark after the starter; -1 if there is none.
  for (const char32_t c : std::u32string(text)) {
    const int combining_class = tables.combining_class[c];
    if (starter != std::u32string::npos && last_class < combining_class) {
      if (const char32_t composite = ComposePair(tables, text[starter], c)) {
        text[starter] = composite;
        continue;
      }
    }
    if (combining_class == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = combining_class;
    }
    text[out++] = c;
  }
  text.resize(out);
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  const Tables& tables = GetTables();
  const uint8_t bit = Tables::Bit(form);
  bool changes = false;
  for (size_t i = 0; i < text.size() && !changes;) {
    const Decoded decoded = Decode(text.data() + i);
    changes = (tables.changes[decoded.code_point] & bit) != 0;
    i += decoded.length;
  }
  if (!changes) return std::string(text);

  std::u32string out;
  out.reserve(text.size());
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  for (size_t i = 0; i < text.size();) {
    const Decoded decoded = Decode(text.data() + i);
    Decompose(tables, decoded.code_point, compatibility, out);
    i += decoded.length;
  }
  Reorder(tables, out);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) Compose(tables, out);
  return ToUtf8(out);
}

}  // namespace sluice::unicode
