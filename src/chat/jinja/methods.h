// Attributes and methods of built-in types that the sandbox allows.
#pragma once

#include <optional>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// Returns getattr(value, name) for all values except undefined ones and objects; nullopt if the
// type has no such attribute. A method that would change the value becomes an undefined value whose
// message explains this.
std::optional<Value> TypeAttribute(const Value& value, std::string_view name);
// The methods of str (methods_string.cc).
std::optional<Value> StringAttribute(const Value& value, std::string_view name);

}  // namespace sluice::jinja
