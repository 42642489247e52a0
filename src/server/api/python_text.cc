#include "server/api/python_text.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"

namespace sluice {
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
