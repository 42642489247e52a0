#include "base/json_count.h"

#include <algorithm>

namespace sluice::json {

TextSize Measure(std::string_view text) {
  TextSize size{.values = 1};
  size_t depth = 0, digits = 0;
  bool inside = false;  // a string
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
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return size;
}

}  // namespace sluice::json
