#include "server/api/context/authorization.h"

#include <algorithm>

#include "base/ascii.h"

namespace sluice {
namespace {

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

std::string_view PresentedKey(const HttpRequest& head, const ApiKeys& keys) {
  if (const std::string* header = head.Header("authorization"); header != nullptr) {
    const size_t space = header->find(' ');
    const std::string_view given =
        space == std::string::npos ? "" : std::string_view(*header).substr(space + 1);
    if (keys.Knows(given) && AsciiLower(header->substr(0, space)) == "bearer") return given;
  }
  const std::string* header = head.Header("x-api-key");
  return header != nullptr && keys.Knows(*header) ? std::string_view(*header) : "";
}

bool IsAuthorized(const HttpRequest& head, std::string_view path, const Route* route,
                  const ServerConfig& config, const ApiKeys& keys) {
  if (!config.needs_key() || !NeedsKey(head, path, route, config.protect_all)) return true;
  return !PresentedKey(head, keys).empty();
}

}  // namespace sluice
