// Removes secrets from the targets of requests before they are logged. Some clients put API keys
// into URLs, and readers of the log are not necessarily authorized to use these keys.
#pragma once

#include <string>
#include <string_view>

#include "server/api/guard/api_keys.h"

namespace sluice {

// Returns `target` for the log. *** replaces the values of query parameters whose names indicate
// secrets (api_key, token, password, ...). It also replaces each value, or the whole path, that
// contains one of `keys` (ApiKeys::FoundIn), percent-encoded or not.
std::string WithoutSecrets(std::string_view target, const ApiKeys& keys);

}  // namespace sluice
