// Attributes and methods of the built-in types that the sandbox lets a template use.
#pragma once

#include <optional>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// getattr(value, name) for all values except undefined ones and objects; nullopt if the type has no
// such attribute. A method that would change the value becomes an undefined value whose message
// says so.
std::optional<Value> TypeAttribute(const Value& value, std::string_view name);
// Methods of str (methods_string.cc).
std::optional<Value> StringAttribute(const Value& value, std::string_view name);

}  // namespace sluice::jinja
