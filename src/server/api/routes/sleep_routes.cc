// POST /sleep, /wake_up and /release_kv_cache_memory, GET /is_sleeping.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/query.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus Sleep(const RouteCall& call) {
  API_ASSIGN_OR_RETURN(const std::string level,
                       QueryChoice(call.request, "level", {"1", "0", "2"}));
  API_ASSIGN_OR_RETURN(const std::string mode,
                       QueryChoice(call.request, "mode", {"abort", "wait", "keep"}));
  if (mode == "keep")
    return BadParameter(
        "mode=keep is not supported, because sleep frees the KV cache of running requests; use "
        "abort or wait",
        "mode");
  ApiContext& api = call.api;
  if (level != "0" && !api.config.enable_sleep_mode) {
    ApiError error;
    error.status = 501;
    error.type = "NotImplementedError";
    error.param = "level";
    error.message = fmt::format(
        "level {} releases the memory of weights and KV cache, which needs --enable-sleep-mode at "
        "the server's start. level=0 and POST /pause only defer requests.",
        level);
    return tl::unexpected<ApiError>(std::move(error));
  }
  api.sleep->Sleep(
      call.model, level.front() - '0', mode == "abort",
      [client = call.client, level, dialect = api.config.dialect](const Status& slept) {
        if (!slept) return client->Send(ErrorResponse(FromError(slept.error()), dialect));
        client->Send(JsonResponse(fmt::format(R"({{"status":"sleeping","level":{}}})", level)));
      });
  return {};
}

ApiStatus WakeUp(const RouteCall& call) {
  const std::vector<std::string> tags = QueryValues(call.request, "tags");
  for (const std::string& tag : tags) {
    if (tag != "weights" && tag != "kv_cache" && tag != "scheduling") {
      return BadParameter(fmt::format("expected weights, kv_cache or scheduling, found '{}'", tag),
                          "tags");
    }
  }
  const auto wakes = [&](std::string_view tag) {
    return tags.empty() || std::ranges::find(tags, tag) != tags.end();
  };
  const Result<bool> awake =
      call.api.sleep->WakeUp(*call.model, wakes("weights"), wakes("kv_cache"));
  if (!awake) return tl::unexpected<ApiError>(FromError(awake.error()));
  std::string body = fmt::format(R"({{"status":"{}","tags":)", *awake ? "awake" : "sleeping");
  if (tags.empty()) {
    body += "null";
  } else {
    for (const std::string& tag : tags) {
      body.push_back(&tag == tags.data() ? '[' : ',');
      json::AppendString(body, tag);
    }
    body.push_back(']');
  }
  call.client->Send(JsonResponse(body + "}"));
  return {};
}

ApiStatus IsSleeping(const RouteCall& call) {
  call.client->Send(
      JsonResponse(fmt::format(R"({{"is_sleeping":{}}})", call.api.sleep->sleeping())));
  return {};
}

}  // namespace

std::vector<Route> SleepRoutes() {
  return {
      OnWorker("/sleep", {"POST"}, RouteGate::kDev, Sleep,
               "Ends running requests and defers new ones; levels 1 and 2 release memory."),
      OnWorker("/wake_up", {"POST"}, RouteGate::kDev, WakeUp, "The end of /sleep."),
      OnIoThread("/is_sleeping", {"GET"}, RouteGate::kDev, IsSleeping, "Whether it sleeps."),
  };
}

}  // namespace sluice
