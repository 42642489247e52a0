// Checks API keys.
#pragma once

#include <string_view>

#include "server/api/context/route.h"
#include "server/api/guard/api_keys.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Returns the key of `keys` that the request presents as "Authorization: Bearer KEY" or, as clients
// of Anthropic's API do, as "X-API-Key: KEY"; "" if there is none. A view into `head`. The time
// does not depend on how many characters of a key match.
std::string_view PresentedKey(const HttpRequest& head, const ApiKeys& keys);

// Whether a request may be answered. If `config` requires API keys, the request must present one of
// `keys` (PresentedKey). Open routes are exempt, unless their path begins with /v1 or another
// prefix that vLLM guards; with protect_all, only health probes are exempt. OPTIONS needs no key if
// it only asks for a route's methods. `path` is without --root-path; `route` is the route of
// `path`, or null.
bool IsAuthorized(const HttpRequest& head, std::string_view path, const Route* route,
                  const ServerConfig& config, const ApiKeys& keys);

}  // namespace sluice
