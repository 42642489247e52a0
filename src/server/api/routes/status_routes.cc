// GET /health, /ready, /ping, /version, /load.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

// Names the engines that have failed, and why; "" if none has.
std::string LostEngines(const Engine& engine) {
  const std::vector<EngineState> states = engine.states();
  if (states.size() == 1) return engine.failure();
  std::string lost;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].is_healthy) continue;
    lost += fmt::format("{}engine {}: {}", lost.empty() ? "" : "; ",
                        engine.info().first_engine + static_cast<int>(i), states[i].reason);
  }
  return lost;
}

// Sends `status`, with code 503 unless `is_good`, the progress of a download, and why engines
// failed.
void SendStatus(const RouteCall& call, std::string_view status, bool is_good) {
  const int64_t total = call.api.download_total;
  std::string body = fmt::format(R"({{"status":"{}"}})", status);
  if (call.model == nullptr && total > 0) {
    body = fmt::format(R"({{"status":"{}","downloaded_bytes":{},"download_bytes":{}}})", status,
                       call.api.download_done.load(), total);
  }
  if (status == "unhealthy" || status == "degraded") {
    if (const std::string reason = LostEngines(*call.model->engine); !reason.empty()) {
      body.back() = ',';
      body += R"("reason":)";
      json::AppendString(body, reason);
      body += "}";
    }
  }
  HttpResponse response = JsonResponse(std::move(body));
  if (!is_good) response.status = 503;
  call.client->Send(std::move(response));
}

std::string_view HealthOf(const RouteCall& call) {
  if (call.model == nullptr) return "loading";
  if (call.api.draining) return "draining";
  return call.model->engine->healthy() ? "ok" : "unhealthy";
}

// While at least one of several engines works, the server is healthy: it answers requests, and a
// restart would abort them.
ApiStatus Health(const RouteCall& call) {
  std::string_view status = HealthOf(call);
  const bool is_good = status == "ok";
  if (is_good && !LostEngines(*call.model->engine).empty()) status = "degraded";
  SendStatus(call, status, is_good);
  return {};
}

// A paused or sleeping server is healthy and must not be restarted, but it is not ready, because a
// request would wait.
ApiStatus Ready(const RouteCall& call) {
  std::string_view status = HealthOf(call);
  if (status == "loading" && call.api.download_total > 0) status = "downloading";
  if (status == "ok") {
    status = call.api.leaving             ? "draining"
             : call.api.sleep->sleeping() ? "sleeping"
             : call.api.active->paused()  ? "paused"
                                          : "ready";
  }
  SendStatus(call, status, status == "ready");
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
