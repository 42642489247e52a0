// POST /pause and /resume, GET /is_paused: holding new requests back.
#include <fmt/format.h>

#include "server/api/query.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus Pause(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string mode,
                       QueryChoice(call.request, "mode", {"abort", "wait", "keep"}));
  if (mode == "keep") {
    return BadParameter(
        "This server cannot stop requests in the middle and go on with them later; use mode=wait "
        "or mode=abort",
        "mode");
  }
  const bool clear = QueryValue(call.request, "clear_cache").value_or("true") != "false";
  call.api.active->Pause([&pool = call.api.pool, client = call.client, model = call.model, clear] {
    // Off the engine's and the I/O threads: emptying the cache waits for the engine.
    pool.Submit([client, model, clear] {
      if (clear) model->engine->ResetPrefixCache();
      client->Send(JsonResponse(R"({"status":"paused"})"));
    });
  });
  if (mode == "abort") call.api.active->AbortRunning();
  return {};
}

ApiStatus Resume(const RouteCall& call) {
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
      OnWorker("/pause", {"POST"}, RouteGate::kDev, Pause, "Holds new requests back."),
      OnWorker("/resume", {"POST"}, RouteGate::kDev, Resume, "Lets them go."),
      OnIoThread("/is_paused", {"GET"}, RouteGate::kDev, IsPaused, "Whether they are held back."),
  };
}

}  // namespace sluice
