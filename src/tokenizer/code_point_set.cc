#include "tokenizer/code_point_set.h"

#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/check.h"

namespace sluice {
namespace {

using unicode::kMaxCodePoint;

// The category that this build of PCRE2 gives each code point: what \p{Lu} in a PCRE2 pattern will match.
const std::vector<uint8_t>& Pcre2Categories() {
  static const std::vector<uint8_t>* const categories = [] {
    auto* table = new std::vector<uint8_t>(kMaxCodePoint + 1, unicode::kCn);
    std::string pattern;
    for (int i = 1; i < unicode::kNumCategories; ++i) {
      if (i == unicode::kCs) continue;  // Never in UTF-8.
      pattern += fmt::format("{}(*MARK:{}){}", pattern.empty() ? "" : "|", i,
                             fmt::format("\\p{{{}}}", unicode::CategoryName(static_cast<unicode::Category>(i))));
    }
    int error = 0;
    size_t offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, nullptr);
    CHECK(code != nullptr, "PCRE2 refuses the general categories at {}", offset);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    std::string text;
    for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      text.clear();
      unicode::Append(text, c);
      const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                     PCRE2_NO_UTF_CHECK, match, nullptr);
      if (result < 0) continue;
      const PCRE2_SPTR mark = pcre2_get_mark(match);
      (*table)[c] = static_cast<uint8_t>(std::atoi(reinterpret_cast<const char*>(mark)));
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return table;
  }();
  return *categories;
}

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {
    {"letter", "L"},           {"uppercaseletter", "Lu"},  {"lowercaseletter", "Ll"}, {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},  {"otherletter", "Lo"},      {"mark", "M"},             {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},     {"enclosingmark", "Me"},    {"number", "N"},           {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},    {"othernumber", "No"},      {"punctuation", "P"},      {"symbol", "S"},
    {"mathsymbol", "Sm"},      {"currencysymbol", "Sc"},   {"modifiersymbol", "Sk"},  {"othersymbol", "So"},
    {"separator", "Z"},        {"spaceseparator", "Zs"},   {"other", "C"},            {"control", "Cc"},
    {"format", "Cf"},
};

// Names compare without case, spaces, hyphens and underscores.
std::string Fold(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return out;
}

}  // namespace

void CodePointSet::Add(char32_t first, char32_t last) {
  for (char32_t c = first; c <= last; ++c) bits_->set(c);
}

CodePointSet CodePointSet::WithFlag(uint16_t flag) {
  CodePointSet set;
  const uint16_t* properties = unicode::PropertyTable();
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (properties[c] & flag) set.bits_->set(c);
  }
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
  uint32_t wanted = 0;  // Bit per category.
  for (int i = 0; i < unicode::kNumCategories; ++i) {
    const std::string category = Fold(unicode::CategoryName(static_cast<unicode::Category>(i)));
    if (category == folded || (folded.size() == 1 && category[0] == folded[0])) wanted |= 1u << i;
  }
  if (wanted != 0) {
    const uint16_t* properties = unicode::PropertyTable();
    for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
      if (wanted >> (properties[c] & unicode::kCategoryMask) & 1) set.bits_->set(c);
    }
    return set;
  }
  std::string title = folded;
  if (!title.empty()) title[0] = static_cast<char>(title[0] >= 'a' && title[0] <= 'z' ? title[0] - 32 : title[0]);
  const unicode::Ranges ranges = unicode::ScriptRanges(title);
  if (ranges.empty()) return std::nullopt;
  for (const auto& [first, last] : ranges) set.Add(first, last);
  return set;
}

std::string CodePointSet::ToPcre2() const {
  // Whole categories of PCRE2 by name, since it tests them faster than ranges; then ranges for what is left.
  const std::vector<uint8_t>& categories = Pcre2Categories();
  uint32_t whole = (1u << unicode::kNumCategories) - 1;
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!bits_->test(c)) whole &= ~(1u << categories[c]);
  }
  whole &= ~(1u << unicode::kCs);
  // Of small sets the ranges are as short, and plainer.
  if (bits_->count() <= 64) whole = 0;
  std::string out;
  for (int i = 0; i < unicode::kNumCategories; ++i) {
    if (whole >> i & 1) out += fmt::format("\\p{{{}}}", unicode::CategoryName(static_cast<unicode::Category>(i)));
  }
  const auto left = [&](char32_t c) {
    return bits_->test(c) && !(whole >> categories[c] & 1) && !(c >= 0xD800 && c < 0xE000);
  };
  for (char32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (!left(c)) continue;
    char32_t last = c;
    // Code points of whole categories may stand inside a range: they belong to the set as well.
    char32_t next = c + 1;
    while (next <= kMaxCodePoint && bits_->test(next) && !(next >= 0xD800 && next < 0xE000)) {
      if (left(next)) last = next;
      ++next;
    }
    out += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(c));
    if (last != c) out += fmt::format("-\\x{{{:X}}}", static_cast<uint32_t>(last));
    c = last;
  }
  return out;
}

}  // namespace sluice
