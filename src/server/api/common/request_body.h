// From the bytes of a request body to a JSON value.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/http/http_types.h"

namespace sluice {

// Checks the content type and parses the body; an empty body is null. Errors: 400. Where the text
// is not JSON, `param` is "body.N", N being the character at fault, as in vLLM. 413 or 503 where
// the memory for it is refused; the reservation also covers what handlers derive from it.
ApiResult<json::Value> ParseRequestBody(const HttpRequest& request);

// The second half: `text` alone, UTF-8 without a byte order mark. Bounded in depth, in the number
// of values, and in time by the length of the text.
ApiResult<json::Value> ParseBodyText(std::string_view text);

}  // namespace sluice
