#include "chat/jinja/text.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <utf8proc.h>

#include "chat/jinja/budget.h"
#include "chat/jinja/case_tables.h"

namespace sluice::jinja {

namespace {

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

struct Interval {
  char32_t first, last;
};
bool InIntervals(std::span<const Interval> intervals, char32_t c) {
  return std::any_of(intervals.begin(), intervals.end(), [c](const Interval& interval) {
    return c >= interval.first && c <= interval.last;
  });
}

const SpecialCase* FindSpecial(std::span<const SpecialCase> table, char32_t c) {
  const auto found =
      std::lower_bound(table.begin(), table.end(), c,
                       [](const SpecialCase& entry, char32_t value) { return entry.from < value; });
  return found != table.end() && found->from == c ? &*found : nullptr;
}

void AppendMapped(std::string& out, char32_t c, std::span<const SpecialCase> table,
                  utf8proc_int32_t (*simple)(utf8proc_int32_t)) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(simple(static_cast<utf8proc_int32_t>(c))));
    return;
  }
  if (const SpecialCase* special = FindSpecial(table, c)) {
    for (const char32_t to : special->to) {
      if (to != 0) AppendUtf8(out, to);
    }
    return;
  }
  AppendUtf8(out, static_cast<char32_t>(simple(static_cast<utf8proc_int32_t>(c))));
}

bool IsCased(char32_t c) {
  return IsUpper(c) || IsLower(c) || IsTitle(c);
}

bool IsCaseIgnorable(char32_t c) {
  switch (c) {
    case U'\'':
    case U'.':
    case U':':
    case U'^':
    case U'`':
    case 0xA8:
    case 0xAD:
    case 0xAF:
    case 0xB4:
    case 0xB7:
    case 0xB8:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A:
    case 0x387:
    case 0x55F:
    case 0x5F4: return true;
    default: break;
  }
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
  }
}

// Whether a sigma takes its final form, because it ends a word.
bool IsFinalSigma(std::string_view text, size_t start, size_t end) {
  bool preceded = false;
  for (size_t position = start; position > 0;) {
    const char32_t c = PreviousCodePoint(text, position);
    if (IsCaseIgnorable(c)) continue;
    preceded = IsCased(c);
    break;
  }
  if (!preceded) return false;
  for (size_t position = end; position < text.size();) {
    const char32_t c = NextCodePoint(text, position);
    if (IsCaseIgnorable(c)) continue;
    return !IsCased(c);
  }
  return true;
}

// A set of code points with lookup in constant time.
class CodePointSet {
 public:
  explicit CodePointSet(std::string_view characters) {
    if (characters.size() > kMaxListed) all_.resize(kNumCodePoints);
    for (size_t position = 0; position < characters.size();) {
      const char32_t c = NextCodePoint(characters, position);
      all_.empty() ? few_.push_back(c) : (void)(all_[c] = true);
    }
    SpendCharacters(characters.size());
  }
  bool Has(char32_t c) const {
    return all_.empty() ? few_.find(c) != std::u32string::npos : all_[c];
  }

 private:
  static constexpr size_t kMaxListed = 64;
  static constexpr size_t kNumCodePoints = 0x110000;

  std::u32string few_;
  // Takes 136 KiB, so it is used only if the set has more than a few code points.
  std::vector<bool> all_;
};

void AppendLower(std::string& out, std::string_view text, size_t start, size_t end, char32_t c) {
  if (c == 0x3A3) {
    AppendUtf8(out, IsFinalSigma(text, start, end) ? 0x3C2 : 0x3C3);
  } else {
    AppendMapped(out, c, SpecialLower(), utf8proc_tolower);
  }
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) {
    ++position;
    return lead;
  }
  utf8proc_int32_t c = -1;
  const auto length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
                       static_cast<utf8proc_ssize_t>(text.size() - position), &c);
  if (length <= 0) {
    ++position;
    return 0xFFFD;
  }
  position += static_cast<size_t>(length);
  return static_cast<char32_t>(c);
}

char32_t PreviousCodePoint(std::string_view text, size_t& position) {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 && IsContinuation(text[start])) --start;
  size_t end = start;
  const char32_t c = NextCodePoint(text, end);
  if (end != position) {
    --position;
    return 0xFFFD;
  }
  position = start;
  return c;
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::u32string Decode(std::string_view text) {
  SpendCharacters(text.size());
  std::u32string result;
  result.reserve(text.size());
  for (size_t position = 0; position < text.size();)
    result.push_back(NextCodePoint(text, position));
  return result;
}

std::string Encode(std::u32string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(result, c);
  return result;
}

size_t ByteOffset(std::string_view text, size_t index) {
  for (size_t position = 0; position < text.size(); ++position) {
    if (IsContinuation(text[position])) continue;
    if (index-- == 0) return position;
  }
  return text.size();
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsAlpha(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

int DecimalValue(char32_t c) {
  // Unicode's decimal digits occur in runs from zero to nine.
  char32_t first = c;
  while (first > 0 && IsDecimal(first - 1)) --first;
  return static_cast<int>((c - first) % 10);
}

bool IsDigit(char32_t c) {
  // The property Numeric_Type=Digit: superscripts, circled digits and similar.
  static constexpr Interval kDigits[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return IsDecimal(c) || (c >= 0x80 && InIntervals(kDigits, c));
}

bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsUpper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  static constexpr Interval kOther[] = {{0x2160, 0x216F},
                                        {0x24B6, 0x24CF},
                                        {0x1F130, 0x1F149},
                                        {0x1F150, 0x1F169},
                                        {0x1F170, 0x1F189}};
  return Category(c) == UTF8PROC_CATEGORY_LU || InIntervals(kOther, c);
}

bool IsLower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  static constexpr Interval kOther[] = {
      {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
      {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
      {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
      {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
      {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
      {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
  return Category(c) == UTF8PROC_CATEGORY_LL || InIntervals(kOther, c);
}

bool IsTitle(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool IsIdentifierStart(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  if (c < 0x80) return IsIdentifierStart(c) || (c >= '0' && c <= '9');
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return IsIdentifierStart(c);
  }
}

std::string Upper(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    AppendMapped(out, NextCodePoint(text, position), SpecialUpper(), utf8proc_toupper);
  }
  return out;
}

std::string Lower(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = NextCodePoint(text, position);
    AppendLower(out, text, start, position, c);
  }
  return out;
}

std::string Title(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  out.reserve(text.size());
  bool previous_is_cased = false;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = NextCodePoint(text, position);
    if (previous_is_cased) {
      AppendLower(out, text, start, position, c);
    } else {
      AppendMapped(out, c, SpecialTitle(), utf8proc_totitle);
    }
    previous_is_cased = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = NextCodePoint(text, position);
    if (start == 0) {
      AppendMapped(out, c, SpecialTitle(), utf8proc_totitle);
    } else {
      AppendLower(out, text, start, position, c);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    const char32_t c = NextCodePoint(text, position);
    if (IsUpper(c)) {
      AppendLower(out, text, start, position, c);
    } else if (IsLower(c)) {
      AppendMapped(out, c, SpecialUpper(), utf8proc_toupper);
    } else {
      AppendUtf8(out, c);
    }
  }
  return out;
}

std::string_view Strip(std::string_view text, Side side, const std::string* characters) {
  const CodePointSet set(characters == nullptr ? std::string_view() : *characters);
  const auto strips = [&](char32_t c) { return characters == nullptr ? IsSpace(c) : set.Has(c); };
  size_t start = 0;
  size_t end = text.size();
  if (side != Side::kRight) {
    while (start < end) {
      size_t next = start;
      if (!strips(NextCodePoint(text, next))) break;
      start = next;
    }
  }
  if (side != Side::kLeft) {
    while (end > start) {
      size_t previous = end;
      if (!strips(PreviousCodePoint(text, previous))) break;
      end = previous;
    }
  }
  SpendCharacters(text.size() - (end - start));
  return text.substr(start, end - start);
}

std::optional<std::string_view> NextLine(std::string_view text, size_t& position, bool keep_ends) {
  const size_t start = position;
  if (start >= text.size()) return std::nullopt;
  size_t end = start;
  while (position < text.size()) {
    const char32_t c = NextCodePoint(text, position);
    if (!IsLineBreak(c)) {
      end = position;
      continue;
    }
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    if (keep_ends) end = position;
    break;
  }
  SpendCharacters(position - start);
  return text.substr(start, end - start);
}

void AppendPythonEscape(std::string& out, char32_t c) {
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[c >> shift & 15]);
}

namespace {

// Appends the escape sequence if `c` is a character that repr escapes in both str and bytes; else
// returns false.
bool AppendEscape(std::string& out, char32_t c, char quote) {
  switch (c) {
    case '\\': out += "\\\\"; return true;
    case '\n': out += "\\n"; return true;
    case '\r': out += "\\r"; return true;
    case '\t': out += "\\t"; return true;
    default: break;
  }
  if (c == static_cast<char32_t>(quote)) {
    out.push_back('\\');
    out.push_back(quote);
    return true;
  }
  return false;
}

char ReprQuote(std::string_view text) {
  return text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos
             ? '"'
             : '\'';
}

}  // namespace

void AppendRepr(std::string& out, std::string_view text) {
  SpendCharacters(text.size());
  SpendAppend(out.size(), text.size());
  const char quote = ReprQuote(text);
  out.push_back(quote);
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, position);
    if (AppendEscape(out, c, quote)) continue;
    if (IsPrintable(c)) {
      AppendUtf8(out, c);
    } else {
      AppendPythonEscape(out, c);
    }
  }
  out.push_back(quote);
}

void AppendBytesRepr(std::string& out, std::string_view bytes) {
  SpendCharacters(bytes.size());
  SpendAppend(out.size(), bytes.size());
  const char quote = ReprQuote(bytes);
  out.push_back('b');
  out.push_back(quote);
  for (const char byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    if (AppendEscape(out, c, quote)) continue;
    if (c >= 0x20 && c < 0x7F) {
      out.push_back(byte);
    } else {
      AppendPythonEscape(out, c);
    }
  }
  out.push_back(quote);
}

}  // namespace sluice::jinja
