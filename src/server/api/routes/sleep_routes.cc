// POST /sleep and /wake_up, GET /is_sleeping: /pause that also empties the cache and sets a metric.
#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"
#include "server/api/query.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus Sleep(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string level,
                       QueryChoice(call.request, "level", {"1", "0", "2"}));
  LOG_WARNING("server",
              "sleeping: requests are held back and the prefix cache is emptied; weights and cache "
              "stay in memory, which this server does not give back");
  ApiContext& api = call.api;
  {
    const MutexLock lock(api.sleep_mutex);
    api.sleeping = true;
    api.metrics->SetSleeping(true);
    api.active->Pause([&pool = api.pool, client = call.client, model = call.model, level] {
      pool.Submit([client, model, level] {
        model->engine->ResetPrefixCache();
        client->Send(JsonResponse(fmt::format(R"({{"status":"sleeping","level":{}}})", level)));
      });
    });
  }
  api.active->AbortRunning();
  return {};
}

ApiStatus WakeUp(const RouteCall& call) {
  ApiContext& api = call.api;
  {
    const MutexLock lock(api.sleep_mutex);
    api.sleeping = false;
    api.metrics->SetSleeping(false);
    api.active->Resume();
  }
  std::string body = R"({"status":"awake","tags":)";
  if (const auto tags = QueryValue(call.request, "tags")) {
    body.push_back('[');
    json::AppendString(body, *tags);
    body.push_back(']');
  } else {
    body += "null";
  }
  call.client->Send(JsonResponse(body + "}"));
  return {};
}

ApiStatus IsSleeping(const RouteCall& call) {
  call.client->Send(JsonResponse(fmt::format(R"({{"is_sleeping":{}}})", call.api.sleeping.load())));
  return {};
}

}  // namespace

std::vector<Route> SleepRoutes() {
  return {
      OnWorker("/sleep", {"POST"}, RouteGate::kDev, Sleep,
               "Ends what runs, empties the cache, holds requests back."),
      OnWorker("/wake_up", {"POST"}, RouteGate::kDev, WakeUp, "The end of /sleep."),
      OnIoThread("/is_sleeping", {"GET"}, RouteGate::kDev, IsSleeping, "Whether it sleeps."),
  };
}

}  // namespace sluice
