// GET /health, /ready, /ping, /version, /load.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

// Sends `status`, with 503 unless it is `good`; how much of the model was downloaded; why the
// engine is lost.
void SendStatus(const RouteCall& call, std::string_view status, std::string_view good) {
  const int64_t total = call.api.download_total;
  std::string body = fmt::format(R"({{"status":"{}"}})", status);
  if (call.model == nullptr && total > 0) {
    body = fmt::format(R"({{"status":"{}","downloaded_bytes":{},"download_bytes":{}}})", status,
                       call.api.download_done.load(), total);
  }
  if (status == "unhealthy") {
    if (const std::string reason = call.model->engine->failure(); !reason.empty()) {
      body.back() = ',';
      body += R"("reason":)";
      json::AppendString(body, reason);
      body += "}";
    }
  }
  HttpResponse response = JsonResponse(std::move(body));
  if (status != good) response.status = 503;
  call.client->Send(std::move(response));
}

std::string_view HealthOf(const RouteCall& call) {
  if (call.model == nullptr) return "loading";
  if (call.api.draining) return "draining";
  return call.model->engine->healthy() ? "ok" : "unhealthy";
}

ApiStatus Health(const RouteCall& call) {
  SendStatus(call, HealthOf(call), "ok");
  return {};
}

// A server that an operator has paused or put to sleep is healthy, and must not be restarted, but a
// request would wait there.
ApiStatus Ready(const RouteCall& call) {
  std::string_view status = HealthOf(call);
  if (status == "loading" && call.api.download_total > 0) status = "downloading";
  if (status == "ok") {
    status = call.api.sleeping ? "sleeping" : call.api.active->paused() ? "paused" : "ready";
  }
  SendStatus(call, status, "ready");
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
      WithAccess(RouteAccess::kHealth,
                 OnIoThread("/ready", {"GET"}, RouteGate::kAlways, Ready,
                            "Whether a request would be answered now.", "Readiness")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/ping", {"GET", "POST"}, RouteGate::kAlways,
                                                Health, "As /health.", "Health")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/version", {"GET"}, RouteGate::kAlways, Version,
                                                "The version of this server.", "Version")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/load", {"GET"}, RouteGate::kAlways, Load,
                                                "How many requests are in progress.", "Load")),
  };
}

}  // namespace sluice
