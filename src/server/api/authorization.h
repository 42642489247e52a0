// API keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace sluice {

// Which of `keys` the request presents as "Authorization: Bearer KEY"; "" for none. Takes the same
// time however much of a key is right.
std::string_view PresentedKey(const HttpRequest& head, const std::vector<std::string>& keys);

// Whether a request to `path` may be answered: those below /v1 and a few other prefixes need
// one of `keys` (PresentedKey), if there are any.
bool IsAuthorized(const HttpRequest& head, std::string_view path,
                  const std::vector<std::string>& keys);

}  // namespace sluice
