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
      WithAccess(RouteAccess::kHealth, OnIoThread("/health", {"GET"}, RouteGate::kAlways, Health,
                                                  "Whether requests are served.", "Health")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/ping", {"GET", "POST"}, RouteGate::kAlways,
                                                Health, "As /health.", "Health")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/version", {"GET"}, RouteGate::kAlways, Version,
                                                "The version of this server.", "Version")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/load", {"GET"}, RouteGate::kAlways, Load,
                                                "How many requests are in progress.", "Load")),
  };
}

}  // namespace sluice
