// API keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

// Whether a request to `path` may be answered: those below /v1 and a few other prefixes need
// "Authorization: Bearer KEY" with one of `keys`, if there are any. Takes the same time however
// much of a key is right.
bool IsAuthorized(const HttpRequest& head, std::string_view path,
                  const std::vector<std::string>& keys);

}  // namespace sluice
