// Functions that every template can call: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#pragma once

#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

bool IsGlobal(std::string_view name);
// REQUIRES: IsGlobal(name).
Value MakeGlobal(std::string_view name);

}  // namespace sluice::jinja
