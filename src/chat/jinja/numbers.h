// Python's int() and float().
#pragma once

#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// int(text, base). Fails (ValueError).
Value ParseInteger(std::string_view text, int64_t base);
// int(value). Fails with TypeError, ValueError or OverflowError.
Value IntegerOf(const Value& value);
// float(value).
double FloatOf(const Value& value);

}  // namespace sluice::jinja
