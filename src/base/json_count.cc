#include "base/json_count.h"

#include <algorithm>

#include "base/json.h"

namespace sluice::json {

TextSize Measure(std::string_view text) {
  TextSize size{.values = 1};
  size_t depth = 0, digits = 0;
  bool inside = false;  // inside a string
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inside = false;
      continue;
    }
    inside = c == '"';
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    size.digits = std::max(size.digits, digits);
    if (c == '[' || c == '{') {
      ++size.values;
      size.depth = std::max(size.depth, ++depth);
    } else if (c == ',') {
      ++size.values;
    } else if (c == ':') {
      ++size.members;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return size;
}

size_t ParseMemory(const TextSize& size, size_t bytes) {
  // simdjson's index takes 4 bytes per byte of text, and its string buffer 5/3 bytes. The strings
  // of the resulting value take at most as many bytes as the text.
  const size_t work = 6 * bytes;
  // A growing list or object takes up to three times the space of its elements: the old capacity
  // and the new one, twice as large, exist at the same time.
  constexpr size_t kValue = 3 * sizeof(Value);
  // In addition, a member has a key.
  constexpr size_t kMember = 3 * sizeof(Value::Member) - kValue + 100;
  return work + bytes + kValue * size.values + kMember * size.members;
}

}  // namespace sluice::json
