// JSON Lines: one JSON value per line; blank lines are skipped.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::json {

// Calls `take` with each value of `text` and its line number, counted from 1. `limits` apply to
// each line. Stops at the first error of the parser or of `take`, and prefixes the error message
// with `file` and the line.
Status ForEachLine(std::string_view text, std::string_view file, const ParseLimits& limits,
                   const std::function<Status(Value value, int64_t line)>& take);

}  // namespace sluice::json
