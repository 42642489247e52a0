// Settings of one key deep inside a JSON object.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace sluice::options {

// Sets the member that `path` names ("pass_config.fuse_norm_quant"), making objects on the way. A
// path that ends in + appends to a list; an array appends its items. kInvalidArgument for a path of
// more than kMaxDottedParts. REQUIRES: an object.
inline constexpr int kMaxDottedParts = 32;
Status SetDotted(json::Value& object, std::string_view path, json::Value value);

}  // namespace sluice::options
