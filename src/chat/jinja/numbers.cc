#include "chat/jinja/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "chat/jinja/operators.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Replaces digits of other scripts by ASCII digits.
std::string AsciiDigits(std::string_view text) {
  SpendCharacters(text.size());
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextCodePoint(text, position);
    if (c >= 0x80 && IsDecimal(c)) {
      out.push_back(static_cast<char>('0' + DecimalValue(c)));
    } else {
      AppendUtf8(out, c);
    }
  }
  return out;
}

[[noreturn]] void FailInteger(std::string_view text, int64_t base) {
  FailValue("invalid literal for int() with base " + std::to_string(base) + ": " +
            Repr(Value::String(std::string(text))));
}

}  // namespace

Value ParseInteger(std::string_view original, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) FailValue("int() base must be >= 2 and <= 36, or 0");
  SpendText(original.size());
  const std::string ascii = AsciiDigits(Strip(original, Side::kBoth));
  std::string_view text = ascii;
  bool is_negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  int64_t actual = base;
  const auto prefix = [&](char letter, int64_t of) {
    if (text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != letter ||
        (base != 0 && base != of))
      return;
    actual = of;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  };
  prefix('x', 16);
  prefix('o', 8);
  prefix('b', 2);
  if (actual == 0) {
    actual = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      FailInteger(original, base);
  }
  std::string digits;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (DigitOf(c) >= actual) FailInteger(original, base);
    digits.push_back(c);
    after_digit = true;
  }
  if (digits.empty() || !after_digit) FailInteger(original, base);
  if (digits.size() > 4300)
    FailValue("Exceeds the limit (4300 digits) for integer string conversion");
  BigInteger number = BigInteger::FromDigits(digits, static_cast<int>(actual));
  return Value::Integer(is_negative ? -number : std::move(number));
}

Value IntegerOf(const Value& value) {
  if (value.is_undefined()) value.FailUndefined();
  if (value.is_string()) return ParseInteger(value.text(), 10);
  if (value.is_integral()) return Posit(value);
  if (!value.is_float()) {
    FailType("int() argument must be a string, a bytes-like object or a real number, not '" +
             value.TypeName() + "'");
  }
  if (std::isnan(value.as_float())) FailValue("cannot convert float NaN to integer");
  if (std::isinf(value.as_float()))
    Fail(FailureKind::kOverflow, "cannot convert float infinity to integer");
  return Value::Integer(BigInteger::FromDouble(value.as_float()));
}

double FloatOf(const Value& value) {
  if (value.is_undefined()) value.FailUndefined();
  if (value.is_number()) return ToDouble(value);
  if (!value.is_string()) {
    FailType("float() argument must be a string or a real number, not '" + value.TypeName() + "'");
  }
  const auto fail = [&] { FailValue("could not convert string to float: " + Repr(value)); };
  SpendText(value.text().size());
  std::string text = AsciiDigits(Strip(value.text(), Side::kBoth));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') continue;
    const auto is_digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) fail();
  }
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  std::string lower = Lower(text);
  if (!lower.empty() && (lower[0] == '+' || lower[0] == '-')) lower.erase(0, 1);
  const bool is_name = lower == "inf" || lower == "infinity" || lower == "nan";
  if (!is_name && lower.find_first_not_of("0123456789.e+-") != std::string::npos) fail();
  if (text.empty()) fail();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0') fail();
  return number;
}

}  // namespace sluice::jinja
