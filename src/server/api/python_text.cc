#include "server/api/python_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

std::string_view Strip(std::string_view text) {
  static constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// One code point; `size` gets its bytes. Invalid bytes give themselves.
char32_t CodePoint(std::string_view text, size_t& size) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const int length = first < 0x80    ? 1
                     : first >= 0xF0 ? 4
                     : first >= 0xE0 ? 3
                     : first >= 0xC0 ? 2
                                     : 1;
  size = 1;
  if (length == 1 || text.size() < static_cast<size_t>(length)) return first;
  char32_t code = first & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
  size = length;
  return code;
}

// Digits of the scripts whose zero stands here count as Python's int() counts them.
int DigitValue(char32_t code) {
  static constexpr char32_t kZeros[] = {U'0',   0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66,
                                        0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0E50,
                                        0x0ED0, 0x0F20, 0x1040, 0x17E0, 0x1810, 0xFF10};
  for (const char32_t zero : kZeros) {
    if (code >= zero && code < zero + 10) return static_cast<int>(code - zero);
  }
  return -1;
}

// Takes the underscores out of "1_0"; none if one stands elsewhere than between digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  const auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::string PythonRepr(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"'
                                                                                            : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
  return out;
}

std::string PythonRepr(std::span<const int64_t> list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
}

std::string PythonRepr(std::span<const std::string> list) {
  std::string out = "[";
  for (const std::string& text : list) {
    if (out.size() > 1) out += ", ";
    out += PythonRepr(text);
  }
  return out + "]";
}

std::string PythonFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out;
  json::AppendDouble(out, value);
  return out;
}

std::string PythonInput(const json::Value& value) {
  switch (value.type()) {
    case json::Type::kNull: return "None";
    case json::Type::kBool: return value.as_bool() ? "True" : "False";
    case json::Type::kInteger: return std::to_string(value.as_integer());
    case json::Type::kBigInteger:
    case json::Type::kString: return value.as_string();
    case json::Type::kDouble: return PythonFloat(value.as_double());
    case json::Type::kArray: return fmt::format("<list of {} items>", value.as_array().size());
    case json::Type::kObject: return fmt::format("<dict of {} items>", value.as_object().size());
  }
  return "";
}

std::optional<int64_t> PythonInt(std::string_view text) {
  text = Strip(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.empty()) return std::nullopt;
  __int128 value = 0;
  bool after_digit = false;
  while (!text.empty()) {
    if (text[0] == '_') {
      if (!after_digit || text.size() == 1) return std::nullopt;
      after_digit = false;
      text.remove_prefix(1);
      continue;
    }
    size_t size = 0;
    const int digit = DigitValue(CodePoint(text, size));
    if (digit < 0) return std::nullopt;
    value = std::min<__int128>(value * 10 + digit, static_cast<__int128>(1) << 80);
    after_digit = true;
    text.remove_prefix(size);
  }
  if (negative) value = -value;
  const __int128 low = std::numeric_limits<int64_t>::min(),
                 high = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(value < low ? low : value > high ? high : value);
}

std::optional<int64_t> LaxInt(std::string_view text) {
  text = Strip(text);
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return std::nullopt;
  }
  if (const size_t dot = text.find('.'); dot != std::string_view::npos && dot > 0) {
    if (text.find_first_not_of('0', dot + 1) != std::string_view::npos) return std::nullopt;
    text = text.substr(0, dot);
  }
  return PythonInt(text);
}

std::optional<double> PythonFloatFrom(std::string_view text) {
  text = Strip(text);
  const std::optional<std::string> plain = WithoutUnderscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (digits[0] == '+' || digits[0] == '-') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '+' || digits[0] == '-') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument)
    return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small: the exponent's sign tells which.
    const size_t exponent = digits.find_first_of("eE");
    value =
        exponent != std::string_view::npos && digits.find('-', exponent) != std::string_view::npos
            ? 0
            : HUGE_VAL;
  }
  return negative ? -value : value;
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string_view TrimToCharacters(std::string_view text, size_t count) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) continue;
    if (count-- == 0) break;
  }
  return text.substr(0, end);
}

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  const auto tail = [&](size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (i < text.size()) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      ++i;
    } else if (c >= 0xC2 && c < 0xE0 && tail(i + 1)) {
      i += 2;
    } else if (c >= 0xE0 && c < 0xF0 && tail(i + 1) && tail(i + 2)) {
      const unsigned char second = static_cast<unsigned char>(text[i + 1]);
      if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second >= 0xA0)) return false;
      i += 3;
    } else if (c >= 0xF0 && c < 0xF5 && tail(i + 1) && tail(i + 2) && tail(i + 3)) {
      const unsigned char second = static_cast<unsigned char>(text[i + 1]);
      if ((c == 0xF0 && second < 0x90) || (c == 0xF4 && second >= 0x90)) return false;
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace sluice
