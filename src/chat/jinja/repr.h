// Converts values to text: str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "chat/jinja/value.h"

namespace sluice::jinja {

void AppendStr(std::string& out, const Value& value);
void AppendRepr(std::string& out, const Value& value);
std::string Str(const Value& value);
std::string Repr(const Value& value);
// Formats a float in Python's spelling: 1.0, 1e-05, inf.
std::string FloatText(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // Text added per level; absent: everything is on one line.
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Fails (TypeError) for values that JSON cannot represent.
std::string ToJson(const Value& value, const JsonStyle& style);

}  // namespace sluice::jinja
