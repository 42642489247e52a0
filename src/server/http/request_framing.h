// Checks the parts of a request's head that determine its end and its host. If a server and a proxy
// in front of it interpret these differently, the body of one request is taken for the next one
// (request smuggling), so ambiguous heads are refused.
#pragma once

#include <optional>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

struct HeadFault {
  int status;           // 400, 415 or 501; the connection has to be closed after it
  const char* message;  // a sentence, plain ASCII without quotes
};

// The first violation of RFC 9112, sections 3.2 and 6, among the header fields (names in lower
// case), or nullopt. `version`: 10 or 11. Checked here is what Beast's parser takes: it reads a
// Transfer-Encoding that it does not understand as no body at all, and does not look at Host.
std::optional<HeadFault> FindHeadFault(const std::vector<HttpHeader>& fields, int version);

}  // namespace sluice
