// POST /reset_prefix_cache, /reset_mm_cache, /reset_encoder_cache.
#include <fmt/format.h>

#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus ResetPrefixCache(const RouteCall& call) {
  const bool done = call.model->engine->ResetPrefixCache();
  call.client->Send(JsonResponse(fmt::format(R"({{"success":{}}})", done)));
  return {};
}

ApiStatus ResetNothing(const RouteCall& call) {
  HttpResponse response;
  response.content_type.clear();
  call.client->Send(std::move(response));
  return {};
}

}  // namespace

std::vector<Route> CacheRoutes() {
  return {
      {.path = "/reset_prefix_cache",
       .methods = {"POST"},
       .gate = RouteGate::kDev,
       .summary = "Empties the prefix cache.",
       .on_worker = ResetPrefixCache},
      {.path = "/reset_mm_cache",
       .methods = {"POST"},
       .gate = RouteGate::kDev,
       .summary = "Nothing: there is no such cache.",
       .response = "text",
       .on_worker = ResetNothing},
      {.path = "/reset_encoder_cache",
       .methods = {"POST"},
       .gate = RouteGate::kDev,
       .summary = "Nothing: there is no such cache.",
       .response = "text",
       .on_worker = ResetNothing},
  };
}

}  // namespace sluice
