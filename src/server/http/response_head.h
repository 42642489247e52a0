// The text of an answer's head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

// Status line and headers, with the empty line after them: those of the response and `common`.
// `framing`: lines that say how long the body is. `close`: the connection ends with this answer.
std::string ResponseHead(const HttpResponse& response, const std::vector<HttpHeader>& common,
                         std::string_view framing, bool close);

}  // namespace sluice
