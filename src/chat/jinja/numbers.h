// Python's int() and float().
#pragma once

#include <string_view>

#include "chat/jinja/value.h"

namespace sluice::jinja {

// Implements int(text, base). Fails with ValueError.
Value ParseInteger(std::string_view text, int64_t base);
// Implements int(value). Fails with TypeError, ValueError or OverflowError.
Value IntegerOf(const Value& value);
// Implements float(value).
double FloatOf(const Value& value);

}  // namespace sluice::jinja
