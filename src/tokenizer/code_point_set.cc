#include "tokenizer/code_point_set.h"

#include <algorithm>
#include <iterator>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/ascii.h"
#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/unicode_data.h"

namespace sluice {
namespace {

using unicode::kMaxCodePoint;

// Consecutive code points of one category.
struct Run {
  char32_t first, last;
  uint8_t category;
};

// Returns the categories of all code points in the linked PCRE2, which determine the matches of
// \p{Lu} in a pattern.
const std::vector<Run>& Pcre2Categories() {
  static const std::vector<Run>* const runs = [] {
    std::string pattern;
    for (int i = 1; i < unicode::kNumCategories; ++i) {
      if (i == unicode::kCs) continue;  // Surrogates do not occur in UTF-8.
      pattern += fmt::format("{}(*MARK:{})\\p{{{}}}+", pattern.empty() ? "" : "|", i,
                             unicode::CategoryName(static_cast<unicode::Category>(i)));
    }
    std::string text;
    // Indexed by the offset in `text` at which the code point begins.
    std::vector<char32_t> code_points;
    for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const size_t begin = text.size();
      AppendUtf8(text, c);
      code_points.resize(text.size());
      code_points[begin] = c;
    }
    auto* found = new std::vector<Run>;  // Never freed: used until the last thread ends.
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF, &error, &offset, nullptr);
    CHECK(code != nullptr, "PCRE2 refuses the general categories at {}", offset);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    char32_t next = 0;  // First code point that no run covers yet.
    const auto add = [&](char32_t first, char32_t last, uint8_t category) {
      if (next < first) found->push_back({next, first - 1, unicode::kCn});
      found->push_back({first, last, category});
      next = last + 1;
    };
    for (size_t at = 0; at < text.size();) {
      if (pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                      PCRE2_NO_UTF_CHECK, match, nullptr) < 0) {
        break;
      }
      const size_t* range = pcre2_get_ovector_pointer(match);
      const auto category =
          static_cast<uint8_t>(std::atoi(reinterpret_cast<const char*>(pcre2_get_mark(match))));
      const char32_t first = code_points[range[0]];
      const char32_t last =
          unicode::DecodeLast(std::string_view(text).substr(0, range[1])).code_point;
      if (first < 0xD800 && last > 0xDFFF) {
        add(first, 0xD7FF, category);
        add(0xE000, last, category);
      } else {
        add(first, last, category);
      }
      at = range[1];
    }
    if (next <= kMaxCodePoint) found->push_back({next, kMaxCodePoint, unicode::kCn});
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return found;
  }();
  return *runs;
}

// Calls each(first, last, properties) for the runs of the property table.
template <typename Each>
void ForEachPropertyRun(Each&& each) {
  for (size_t i = 0; i < unicode_data::kPropertiesSize; ++i) {
    const uint32_t entry = unicode_data::kProperties[i];
    const char32_t end = i + 1 < unicode_data::kPropertiesSize
                             ? unicode_data::kProperties[i + 1] >> 11
                             : kMaxCodePoint + 1;
    each(char32_t{entry >> 11}, end - 1, static_cast<uint16_t>(entry & 0x7FF));
  }
}

// Appends a range that begins after all existing ones.
void Append(unicode::Ranges& ranges, char32_t first, char32_t last) {
  if (!ranges.empty() && ranges.back().second + 1 == first) {
    ranges.back().second = last;
  } else {
    ranges.emplace_back(first, last);
  }
}

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
};

// Removes case, spaces, hyphens and underscores, which do not matter in property names.
std::string Fold(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out.push_back(AsciiLower(c));
  }
  return out;
}

}  // namespace

void CodePointSet::Add(const CodePointSet& other) {
  unicode::Ranges all;
  all.reserve(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
             std::back_inserter(all));
  ranges_.clear();
  for (const auto& [first, last] : all) {
    if (!ranges_.empty() && first <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, last);
    } else {
      ranges_.emplace_back(first, last);
    }
  }
}

void CodePointSet::Complement() {
  unicode::Ranges out;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (next < first) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kMaxCodePoint) out.emplace_back(next, kMaxCodePoint);
  ranges_ = std::move(out);
}

void CodePointSet::Intersect(CodePointSet other) {
  Complement();
  other.Complement();
  Add(other);
  Complement();
}

CodePointSet CodePointSet::WithFlag(uint16_t flag) {
  CodePointSet set;
  ForEachPropertyRun([&](char32_t first, char32_t last, uint16_t properties) {
    if (properties & flag) Append(set.ranges_, first, last);
  });
  return set;
}

std::optional<CodePointSet> CodePointSet::OfProperty(std::string_view name) {
  std::string folded = Fold(name);
  CodePointSet set;
  if (folded == "any") {
    set.Complement();
    return set;
  }
  for (const LongName& alias : kLongNames) {
    if (alias.name == folded) folded = Fold(alias.category);
  }
  uint32_t wanted = 0;  // One bit per category.
  for (int i = 0; i < unicode::kNumCategories; ++i) {
    const std::string category = Fold(unicode::CategoryName(static_cast<unicode::Category>(i)));
    if (category == folded || (folded.size() == 1 && category[0] == folded[0])) wanted |= 1u << i;
  }
  if (wanted != 0) {
    ForEachPropertyRun([&](char32_t first, char32_t last, uint16_t properties) {
      if (wanted >> (properties & unicode::kCategoryMask) & 1) Append(set.ranges_, first, last);
    });
    return set;
  }
  if (folded.empty()) return std::nullopt;
  if (folded[0] >= 'a' && folded[0] <= 'z') folded[0] = static_cast<char>(folded[0] - 32);
  set.ranges_ = unicode::ScriptRanges(folded);
  if (set.ranges_.empty()) return std::nullopt;
  return set;
}

std::string CodePointSet::ToPcre2() const {
  CodePointSet set = *this;
  CodePointSet surrogates;
  surrogates.Add(0xD800, 0xDFFF);
  surrogates.Complement();
  set.Intersect(surrogates);  // PCRE2 rejects surrogates, and they do not occur in UTF-8.
  const auto write = [](char32_t first, char32_t last) {
    std::string out = fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(first));
    if (last != first) out += fmt::format("-\\x{{{:X}}}", static_cast<uint32_t>(last));
    return out;
  };
  std::string out;
  constexpr size_t kPlain = 16;  // with so few ranges, category names would not make the class
                                 // shorter or faster
  if (set.ranges_.size() <= kPlain) {
    for (const auto& [first, last] : set.ranges_) out += write(first, last);
    return out;
  }

  // Writes whole categories by name first, because PCRE2 tests them faster than ranges, then the
  // remaining ranges.
  const std::vector<Run>& runs = Pcre2Categories();
  uint32_t whole = (1u << unicode::kNumCategories) - 1;
  size_t at = 0;
  for (const Run& run : runs) {
    while (at < set.ranges_.size() && set.ranges_[at].second < run.first) ++at;
    const bool inside = at < set.ranges_.size() && set.ranges_[at].first <= run.first &&
                        run.last <= set.ranges_[at].second;
    if (!inside) whole &= ~(1u << run.category);
  }
  whole &= ~(1u << unicode::kCs);
  for (int i = 0; i < unicode::kNumCategories; ++i) {
    if (whole >> i & 1)
      out += fmt::format("\\p{{{}}}", unicode::CategoryName(static_cast<unicode::Category>(i)));
  }
  size_t run = 0;
  for (const auto& [first, last] : set.ranges_) {
    // [begin, end]: from the first to the last code point of this range that no named category
    // covers.
    std::optional<char32_t> begin;
    char32_t end = 0;
    while (runs[run].last < first) ++run;
    for (size_t i = run; i < runs.size() && runs[i].first <= last; ++i) {
      if (whole >> runs[i].category & 1) continue;
      if (!begin) begin = std::max(first, runs[i].first);
      end = std::min(last, runs[i].last);
    }
    if (begin) out += write(*begin, end);
  }
  return out;
}

}  // namespace sluice
