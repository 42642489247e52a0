// Cross-origin resource sharing, with the same responses as Starlette's CORSMiddleware.
#pragma once

#include <optional>
#include <vector>

#include "server/http/http_types.h"
#include "server/server_config.h"

namespace sluice {

// Thread safety: immutable.
class Cors {
 public:
  explicit Cors(const ServerConfig& config);

  // Whether `request` is OPTIONS with Origin and Access-Control-Request-Method.
  static bool IsPreflight(const HttpRequest& request);
  // Returns the response to a preflight request; nullopt for other requests.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;
  // Returns the headers for the responses to all other requests.
  std::vector<HttpHeader> Headers(const HttpRequest& request) const;

 private:
  bool IsAllowed(const std::string& origin) const;

  std::vector<std::string> origins_, methods_, headers_;
  bool all_origins_ = false, all_headers_ = false, credentials_ = false;
};

}  // namespace sluice
