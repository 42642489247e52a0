// JSON Lines: a JSON value in every line but blank ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::json {

// Gives each value of `text` and the number of its line, from 1, to `take`. Ends with the first
// error of the parser, within `limits` for a line, or of `take`; `file` and the line stand in front
// of its message.
Status ForEachLine(std::string_view text, std::string_view file, const ParseLimits& limits,
                   const std::function<Status(Value value, int64_t line)>& take);

}  // namespace sluice::json
