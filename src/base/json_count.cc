#include "base/json_count.h"

#include <algorithm>

#include "base/json.h"

namespace sluice::json {

TextSize Measure(std::string_view text) {
  TextSize size{.values = 1};
  size_t depth = 0, digits = 0;
  bool inside = false;  // in a string
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
  // simdjson's index takes four bytes per byte of the text, its string buffer 5/3; the strings of
  // the value are no longer than the text.
  const size_t work = 6 * bytes;
  // While a list or object grows to twice its capacity, it takes three times the space of its
  // elements.
  constexpr size_t kValue = 3 * sizeof(Value);
  constexpr size_t kMember = 3 * sizeof(Value::Member) - kValue + 100;  // and its key
  return work + bytes + kValue * size.values + kMember * size.members;
}

}  // namespace sluice::json
