// Sets a single nested key of a JSON object.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::options {

// Sets the member at `path` ("pass_config.fuse_norm_quant"), and creates objects as needed. A path
// that ends in + appends to a list; an array appends its items. kInvalidArgument for a path of more
// than kMaxDottedParts parts. REQUIRES: `object` is an object.
inline constexpr int kMaxDottedParts = 32;
Status SetDotted(json::Value& object, std::string_view path, json::Value value);

}  // namespace sluice::options
