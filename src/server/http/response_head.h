// The text of an answer's head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

// Returns the status line, the headers of the response, the `common` headers, and the empty line.
// `framing`: lines that determine the length of the body. `close`: the connection ends after this
// answer.
std::string ResponseHead(const HttpResponse& response, const std::vector<HttpHeader>& common,
                         std::string_view framing, bool close);

}  // namespace sluice
