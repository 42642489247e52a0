// API keys.
#pragma once

#include <string_view>

#include "server/api/context/route.h"
#include "server/api/guard/api_keys.h"
#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Which of `keys` the request presents as "Authorization: Bearer KEY" or, as clients of Anthropic's
// API do, "X-API-Key: KEY"; "" for none. A view of `head`. Takes the same time however much of a
// key is right.
std::string_view PresentedKey(const HttpRequest& head, const ApiKeys& keys);

// Whether a request may be answered. Where `config` asks for API keys, one of `keys` (PresentedKey)
// is needed for every route but those that are open, for all that is below /v1 and the other
// prefixes which vLLM guards, and with protect_all for all but health. OPTIONS needs none where it
// only asks for the methods of a route. `path` has no --root-path, `route` is what it leads to, or
// null.
bool IsAuthorized(const HttpRequest& head, std::string_view path, const Route* route,
                  const ServerConfig& config, const ApiKeys& keys);

}  // namespace sluice
