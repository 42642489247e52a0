// POST /pause and /resume, GET /is_paused: defer new requests.
#include <fmt/format.h>

#include "server/api/common/query.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus Pause(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string mode,
                       QueryChoice(call.request, "mode", {"abort", "wait", "keep"}));
  if (mode == "keep") {
    // New requests wait; running ones stop between two tokens.
    call.api.active->Pause([] {});
    if (const Status frozen = call.model->engine->SetFrozen(true); !frozen) {
      call.api.active->Resume();
      return tl::unexpected<ApiError>(FromError(frozen.error()));
    }
    call.client->Send(JsonResponse(R"({"status":"paused"})"));
    return {};
  }
  const bool clear = QueryValue(call.request, "clear_cache").value_or("true") != "false";
  call.api.active->Pause([&pool = call.api.pool, client = call.client, model = call.model, clear] {
    // Runs on a worker, because emptying the cache waits for the engine: the engine's thread and
    // the I/O threads must not wait.
    pool.Submit([client, model, clear] {
      if (clear) model->engine->ResetPrefixCache();
      client->Send(JsonResponse(R"({"status":"paused"})"));
    });
  });
  if (mode == "abort") call.api.active->AbortRunning();
  return {};
}

ApiStatus Resume(const RouteCall& call) {
  // Ignores the error: an engine that does not support freezing is not frozen.
  [[maybe_unused]] const Status thawed = call.model->engine->SetFrozen(false);
  call.api.active->Resume();
  call.client->Send(JsonResponse(R"({"status":"resumed"})"));
  return {};
}

ApiStatus IsPaused(const RouteCall& call) {
  call.client->Send(JsonResponse(fmt::format(R"({{"is_paused":{}}})", call.api.active->paused())));
  return {};
}

}  // namespace

std::vector<Route> PauseRoutes() {
  return {
      OnWorker("/pause", {"POST"}, RouteGate::kDev, Pause,
               "Defers new requests; mode determines what happens to running ones."),
      OnWorker("/resume", {"POST"}, RouteGate::kDev, Resume, "Lets them go."),
      OnIoThread("/is_paused", {"GET"}, RouteGate::kDev, IsPaused,
                 "Whether new requests are deferred."),
  };
}

}  // namespace sluice
