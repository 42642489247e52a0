// GET /metrics: Prometheus' text or, as in trtllm-serve, the steps of the engine.
#include <fmt/format.h>

#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus Prometheus(const RouteCall& call) {
  const bool is_idle = call.model != nullptr && call.model->engine->num_unfinished() == 0;
  const Adapters* const adapters = call.model == nullptr ? nullptr : call.model->engine->adapters();
  const std::vector<EngineState> states =
      call.model != nullptr ? call.model->engine->states() : std::vector<EngineState>();
  const CacheEventCounts events =
      call.model == nullptr ? CacheEventCounts() : call.model->engine->cache_event_counts();
  const TierCounts tiers = call.model == nullptr ? TierCounts() : call.model->engine->tier_counts();
  HttpResponse response =
      JsonResponse(call.api.metrics->Text(is_idle, states, adapters, events, tiers));
  // As in vLLM, the content type of a plain GET names the newer version of the format.
  const bool newer = call.request.method == "GET" && !call.request.path.ends_with('/');
  response.content_type =
      fmt::format("text/plain; version={}; charset=utf-8", newer ? "1.0.0" : "0.0.4");
  call.client->Send(std::move(response));
  return {};
}

ApiStatus MetricsOfDialect(const RouteCall& call) {
  if (call.api.config.dialect != ApiDialect::kTrtllm) return Prometheus(call);
  call.client->Send(JsonResponse(call.api.metrics->TakeIterations()));
  return {};
}

}  // namespace

std::vector<Route> MetricsRoutes() {
  return {
      WithAccess(
          RouteAccess::kOpen,
          OnIoThread("/metrics", {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
                     RouteGate::kAlways, MetricsOfDialect, "Metrics in Prometheus' text format.",
                     "text")),
      WithAccess(RouteAccess::kOpen, OnIoThread("/prometheus/metrics", {"GET"}, RouteGate::kTrtllm,
                                                Prometheus, "As /metrics of vLLM.", "text")),
  };
}

}  // namespace sluice
