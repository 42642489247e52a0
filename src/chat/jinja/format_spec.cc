#include "chat/jinja/format_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "chat/jinja/format.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/repr.h"
#include "chat/jinja/text.h"

namespace sluice::jinja {

namespace {

constexpr int64_t kMaxPrecision = 1000;

int64_t ParseNumber(std::string_view text, size_t& position) {
  int64_t number = -1;
  while (position < text.size() && text[position] >= '0' && text[position] <= '9') {
    number = std::max<int64_t>(number, 0) * 10 + (text[position++] - '0');
    if (number > INT32_MAX) FailValue("Too many decimal digits in format string");
  }
  return number;
}

bool IsAlign(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

std::string Grouped(const std::string& digits, char separator, size_t group) {
  size_t end = 0;
  while (end < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[end]))) ++end;
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(end);
}

std::string FormatInteger(const Value& value, const FormatSpec& spec) {
  const char type = spec.type == 0 ? 'd' : spec.type;
  if (spec.precision >= 0) FailValue("Precision not allowed in integer format specifier");
  const bool is_negative = ToBigInteger(value).is_negative();
  std::string prefix;
  int base = 10;
  switch (type) {
    case 'd':
    case 'n': break;
    case 'b':
      base = 2;
      prefix = "0b";
      break;
    case 'o':
      base = 8;
      prefix = "0o";
      break;
    case 'x':
      base = 16;
      prefix = "0x";
      break;
    case 'X':
      base = 16;
      prefix = "0X";
      break;
    case 'c': {
      std::string text;
      const int64_t c = ToIndex(value, "character");
      if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        Fail(FailureKind::kOverflow, "%c arg not in range(0x110000)");
      AppendUtf8(text, static_cast<char32_t>(c));
      return PadText(text, spec.width, spec.align == 0 ? '<' : spec.align, spec.fill);
    }
    default: FailValue(std::string("Unknown format code '") + type + "' for object of type 'int'");
  }
  std::string digits = IntegerDigits(value, base, type == 'X');
  if (spec.grouping != 0) digits = Grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  return PadNumber(spec, is_negative, spec.alternate ? prefix : "", std::move(digits));
}

std::string FormatFloat(const Value& value, const FormatSpec& spec) {
  double number = ToDouble(value);
  const bool is_negative = std::signbit(number) && !std::isnan(number);
  number = std::fabs(number);
  std::string digits;
  const auto precision = static_cast<int>(std::min(spec.precision, kMaxPrecision));
  switch (spec.type) {
    case 0:
      if (precision < 0) {
        digits = FloatText(number);
      } else {
        digits = FormatMagnitude(number, 'g', std::max(precision, 1), spec.alternate);
        if (std::isfinite(number) && digits.find_first_of(".e") == std::string::npos)
          digits += ".0";
      }
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'n':
      digits = FormatMagnitude(number, spec.type == 'n' ? 'g' : spec.type,
                               precision < 0 ? 6 : precision, spec.alternate);
      break;
    case '%':
      digits =
          FormatMagnitude(number * 100, 'f', precision < 0 ? 6 : precision, spec.alternate) + "%";
      break;
    default:
      FailValue(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
  }
  if (spec.grouping != 0) {
    const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = Grouped(digits.substr(0, end), spec.grouping, 3) + digits.substr(end);
  }
  return PadNumber(spec, is_negative, "", std::move(digits));
}

}  // namespace

std::string FormatMagnitude(double value, char type, int precision, bool alternate) {
  Spend(16);
  const bool is_upper = type >= 'A' && type <= 'Z';
  if (std::isinf(value)) return is_upper ? "INF" : "inf";
  if (std::isnan(value)) return is_upper ? "NAN" : "nan";
  const char format[] = {'%',
                         alternate ? '#' : '.',
                         alternate ? '.' : '*',
                         alternate ? '*' : type,
                         alternate ? type : '\0',
                         '\0'};
  std::string out(400 + static_cast<size_t>(std::max(precision, 0)), '\0');
  const int size = std::snprintf(out.data(), out.size(), format, precision, value);
  out.resize(static_cast<size_t>(size));
  return out;
}

std::string FormatFixed(double value, int digits) {
  return (std::signbit(value) ? "-" : "") + FormatMagnitude(std::fabs(value), 'f', digits, false);
}

std::string IntegerDigits(const Value& integer, int base, bool upper) {
  BigInteger number = ToBigInteger(integer);
  if (number.is_negative()) number = -number;
  if (base == 10) return number.ToDecimal();
  std::string digits;
  BigInteger quotient, remainder;
  do {
    BigInteger::DivideFloor(number, BigInteger(base), quotient, remainder);
    const int64_t digit = *remainder.ToInt64();
    digits.push_back(
        static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10));
    number = quotient;
  } while (!number.is_zero());
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string PadNumber(const FormatSpec& spec, bool is_negative, std::string_view prefix,
                      std::string digits) {
  std::string lead = is_negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  lead += prefix;
  const char align = spec.align == 0 ? '>' : spec.align;
  if (align != '=') return PadText(lead + digits, spec.width, align, spec.fill);
  const int64_t missing = spec.width - static_cast<int64_t>(lead.size() + digits.size());
  if (missing <= 0) return lead + digits;
  if (spec.grouping != 0 && spec.fill == "0") {
    // Padding zeros are grouped like the digits.
    std::string plain;
    const size_t end = std::min(digits.find_first_of(".e%"), digits.size());
    for (size_t i = 0; i < end; ++i) {
      if (digits[i] != spec.grouping) plain.push_back(digits[i]);
    }
    while (static_cast<int64_t>(lead.size() + plain.size() + (plain.size() - 1) / 3 +
                                digits.size() - end) < spec.width) {
      plain.insert(0, "0");
      SpendText(plain.size());
    }
    return lead + Grouped(plain, spec.grouping, 3) + digits.substr(end);
  }
  SpendText(static_cast<size_t>(missing) * spec.fill.size());
  for (int64_t i = 0; i < missing; ++i) lead += spec.fill;
  return lead + digits;
}

FormatSpec ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  size_t position = 0;
  if (!text.empty()) {
    size_t next = 0;
    NextCodePoint(text, next);
    if (next < text.size() && IsAlign(text[next])) {
      spec.fill = std::string(text.substr(0, next));
      spec.align = text[next];
      position = next + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      position = 1;
    }
  }
  const auto peek = [&] { return position < text.size() ? text[position] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[position++];
  if (peek() == 'z') ++position;
  if (peek() == '#') {
    spec.alternate = true;
    ++position;
  }
  if (peek() == '0') {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    ++position;
  }
  spec.width = std::max<int64_t>(ParseNumber(text, position), 0);
  if (peek() == ',' || peek() == '_') spec.grouping = text[position++];
  if (peek() == '.') {
    ++position;
    spec.precision = ParseNumber(text, position);
    if (spec.precision < 0) FailValue("Format specifier missing precision");
  }
  if (position < text.size()) spec.type = text[position++];
  if (position != text.size()) FailValue("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

std::string FormatValue(const Value& value, std::string_view text) {
  if (text.empty()) return Str(value);
  FormatSpec spec = ParseFormatSpec(text);
  switch (value.kind()) {
    case Kind::kString: {
      if (spec.type != 0 && spec.type != 's') {
        FailValue(std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
      }
      if (spec.align == '=') {
        if (spec.fill != "0") FailValue("'=' alignment not allowed in string format specifier");
        spec.align = '<';
      }
      if (spec.grouping != 0) FailValue("Cannot specify ',' with 's'.");
      std::string_view string = value.text();
      SpendSearch(string.size());
      if (spec.precision >= 0)
        string = string.substr(0, ByteOffset(string, static_cast<size_t>(spec.precision)));
      return PadText(string, spec.width, spec.align == 0 ? '<' : spec.align, spec.fill);
    }
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kBigInteger:
      if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0) {
        return FormatFloat(value, spec);
      }
      return FormatInteger(value, spec);
    case Kind::kFloat: return FormatFloat(value, spec);
    default: FailType("unsupported format string passed to " + value.TypeName() + ".__format__");
  }
}

}  // namespace sluice::jinja
