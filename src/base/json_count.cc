#include "base/json_count.h"

namespace sluice::json {

size_t CountValues(std::string_view text) {
  size_t count = 1;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inside = false;
    } else if (c == '"') {
      inside = true;
    } else {
      count += c == ',' || c == '[' || c == '{';
    }
  }
  return count;
}

}  // namespace sluice::json
