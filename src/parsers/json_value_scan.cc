#include "parsers/json_value_scan.h"

namespace sluice {

JsonValueScan::Step JsonValueScan::Feed(char c) {
  if (kind_ == Kind::kUnknown) {
    kind_ = c == '"' ? Kind::kString : c == '{' || c == '[' ? Kind::kNested : Kind::kWord;
    in_string_ = c == '"';
    depth_ = kind_ == Kind::kNested ? 1 : 0;
    return Step::kInside;
  }
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (kind_ == Kind::kString) return Step::kLast;
    }
    return Step::kInside;
  }
  if (kind_ == Kind::kWord) {
    const bool over =
        c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
    return over ? Step::kOver : Step::kInside;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && --depth_ == 0) return Step::kLast;
  return Step::kInside;
}

}  // namespace sluice
