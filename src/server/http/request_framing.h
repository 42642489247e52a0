// Checks the parts of a request's head that determine its end and its host. If the server and a
// proxy in front of it interpret these parts differently, the server may read the body of one
// request as the next request (request smuggling). So ambiguous heads are refused.
#pragma once

#include <optional>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

struct HeadFault {
  int status;           // 400, 415 or 501; the connection must be closed after it
  const char* message;  // a sentence in plain ASCII without quotes
};

// Returns the first violation of RFC 9112, sections 3.2 and 6, among the header fields (names in
// lower case), or nullopt. `version`: 10 or 11. Checks heads that Beast's parser has accepted,
// because the parser is lenient: it treats a request with an unknown Transfer-Encoding as one
// without a body, and does not check Host.
std::optional<HeadFault> FindHeadFault(const std::vector<HttpHeader>& fields, int version);

}  // namespace sluice
