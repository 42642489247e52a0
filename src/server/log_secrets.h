// Keys in the targets of requests, which belong into no log. Clients put them there against all
// advice, and who reads a log is not who may use the server.
#pragma once

#include <string>
#include <string_view>

#include "server/api/api_keys.h"

namespace sluice {

// `target` as a log may show it: *** stands for the value of a query's parameter that by its name
// is a secret (api_key, token, password, ...), and for each value, or the whole path, in which one
// of `keys` is found (ApiKeys::FoundIn), percent-encoded or not.
std::string WithoutSecrets(std::string_view target, const ApiKeys& keys);

}  // namespace sluice
