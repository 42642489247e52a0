#include "server/api/authorization.h"

#include <algorithm>

#include "base/ascii.h"

namespace sluice {
namespace {

bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]);
  }
  return difference == 0;
}

// Which of `keys` it is; "" for none.
std::string_view KeyOf(std::string_view given, const std::vector<std::string>& keys) {
  std::string_view found;
  for (const std::string& key : keys) {
    if (!key.empty() && SameKey(given, key)) found = key;
  }
  return found;
}

bool NeedsKey(const HttpRequest& head, std::string_view path, const Route* route,
              bool protect_all) {
  if (route != nullptr && route->access == RouteAccess::kHealth) return false;
  if (head.method == "OPTIONS" &&
      (route == nullptr || std::ranges::find(route->methods, "OPTIONS") == route->methods.end()))
    return false;
  if (protect_all) return true;
  for (const std::string_view prefix : {"/v1", "/v2", "/inference", "/cohere"}) {
    if (path.starts_with(prefix)) return true;
  }
  return route != nullptr && route->access == RouteAccess::kKey;
}

}  // namespace

std::string_view PresentedKey(const HttpRequest& head, const std::vector<std::string>& keys) {
  if (const std::string* header = head.Header("authorization"); header != nullptr) {
    const size_t space = header->find(' ');
    const std::string_view given =
        space == std::string::npos ? "" : std::string_view(*header).substr(space + 1);
    const std::string_view found = KeyOf(given, keys);
    if (!found.empty() && AsciiLower(header->substr(0, space)) == "bearer") return found;
  }
  const std::string* header = head.Header("x-api-key");
  return header == nullptr ? "" : KeyOf(*header, keys);
}

bool IsAuthorized(const HttpRequest& head, std::string_view path, const Route* route,
                  const ServerConfig& config) {
  if (config.api_keys.empty() || !NeedsKey(head, path, route, config.protect_all)) return true;
  return !PresentedKey(head, config.api_keys).empty();
}

}  // namespace sluice
