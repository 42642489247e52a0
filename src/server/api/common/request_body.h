// Converts the bytes of a request body to a JSON value.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/api/common/api_error.h"
#include "server/http/http_types.h"

namespace sluice {

// Checks the content type and parses the body; an empty body is null. Errors: 400; if the text is
// not JSON, `param` is "body.N", with the index N of the offending character, as in vLLM. 413 or
// 503 if the memory for the value is refused; the reservation also covers what handlers derive from
// it.
ApiResult<json::Value> ParseRequestBody(const HttpRequest& request);

// Only parses `text`, which is UTF-8 without a byte order mark. Limits the depth and the number of
// values; the length of the text limits the time.
ApiResult<json::Value> ParseBodyText(std::string_view text);

}  // namespace sluice
