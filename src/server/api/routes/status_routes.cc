// GET /health, /ping, /version, /load.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus Health(const RouteCall& call) {
  const std::string_view status = call.model == nullptr            ? "loading"
                                  : call.api.draining              ? "draining"
                                  : !call.model->engine->healthy() ? "unhealthy"
                                                                   : "ok";
  HttpResponse response = JsonResponse(fmt::format(R"({{"status":"{}"}})", status));
  if (status != "ok") response.status = 503;
  call.client->Send(std::move(response));
  return {};
}

ApiStatus Version(const RouteCall& call) {
  std::string body = R"({"version":)";
  json::AppendString(body, call.api.config.version);
  call.client->Send(JsonResponse(body + "}"));
  return {};
}

ApiStatus Load(const RouteCall& call) {
  const int64_t load = call.api.config.enable_server_load_tracking ? call.api.pending->load() : 0;
  call.client->Send(JsonResponse(fmt::format(R"({{"server_load":{}}})", load)));
  return {};
}

}  // namespace

std::vector<Route> StatusRoutes() {
  return {
      {.path = "/health",
       .methods = {"GET"},
       .summary = "Whether requests are served.",
       .response = "Health",
       .on_io_thread = Health},
      {.path = "/ping",
       .methods = {"GET", "POST"},
       .summary = "As /health.",
       .response = "Health",
       .on_io_thread = Health},
      {.path = "/version",
       .methods = {"GET"},
       .summary = "The version of this server.",
       .response = "Version",
       .on_io_thread = Version},
      {.path = "/load",
       .methods = {"GET"},
       .summary = "How many requests are in progress.",
       .response = "Load",
       .on_io_thread = Load},
  };
}

}  // namespace sluice
