#include "server/api/common/python_text.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "chat/jinja/text.h"

namespace sluice {

std::string PythonRepr(std::string_view text) {
  std::string out;
  jinja::AppendRepr(out, text);
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

}  // namespace sluice
