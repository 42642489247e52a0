// Attributes and methods of the built-in types, as far as the sandbox lets a template use them.
#pragma once

#include <optional>
#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// getattr(value, name) for everything but undefined values and objects; absent if the type has no
// such attribute. Methods that would change the value are undefined values that say so.
std::optional<Value> TypeAttribute(const Value& value, std::string_view name);
// Methods of str, by file methods_string.cc.
std::optional<Value> StringAttribute(const Value& value, std::string_view name);

}  // namespace sluice::jinja
