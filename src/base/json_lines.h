// JSON Lines: a JSON value in every line that is not blank.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::json {

// Passes each value of `text` and its line number, from 1, to `take`. Stops at the first error of
// the parser (with `limits` per line) or of `take`; `file` and the line are put before its message.
Status ForEachLine(std::string_view text, std::string_view file, const ParseLimits& limits,
                   const std::function<Status(Value value, int64_t line)>& take);

}  // namespace sluice::json
