// From the bytes of a request body to a JSON value.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api/api_error.h"
#include "server/http/http_types.h"

namespace sluice {

// Checks the content type and parses the body as Python's json does: UTF-8, -16 or -32 with or
// without a byte order mark, the last of two equal keys, NaN and Infinity, halves of surrogate
// pairs (kept as three bytes that are no UTF-8). Errors: 400, with the place of the first character
// that does not fit where there is one. Bounded in depth, in the number of values, and in time by
// the length of the body.
ApiResult<json::Value> ParseRequestBody(const HttpRequest& request);

// The second half: `text` alone.
ApiResult<json::Value> ParseJsonAsPython(std::string_view text);

}  // namespace sluice
