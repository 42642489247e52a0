// Keys in the targets of requests, which belong into no log. Clients put them there against all
// advice, and who reads a log is not who may use the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// `target` as a log may show it: *** stands for the value of a query's parameter that by its name
// is a secret (api_key, token, password, ...), and for each value, or the whole path, in which one
// of `keys` is found, percent-encoded or not. Keys shorter than 8 characters, which words contain
// by chance, are found only as the whole value of a parameter.
std::string WithoutSecrets(std::string_view target, const std::vector<std::string>& keys);

}  // namespace sluice
