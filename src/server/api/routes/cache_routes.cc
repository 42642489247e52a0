// POST /reset_prefix_cache, /reset_mm_cache, /reset_encoder_cache.
#include <fmt/format.h>

#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus ResetPrefixCache(const RouteCall& call) {
  const bool done = call.model->engine->ResetPrefixCache();
  call.client->Send(JsonResponse(fmt::format(R"({{"success":{}}})", done)));
  return {};
}

ApiStatus SendEmpty(const RouteCall& call) {
  HttpResponse response;
  response.content_type.clear();
  call.client->Send(std::move(response));
  return {};
}

ApiStatus ResetImageCache(const RouteCall& call) {
  call.model->image_cache->Clear();
  return SendEmpty(call);
}

ApiStatus ResetImageRows(const RouteCall& call) {
  call.model->engine->ResetImageRows();
  return SendEmpty(call);
}

}  // namespace

std::vector<Route> CacheRoutes() {
  return {
      OnWorker("/reset_prefix_cache", {"POST"}, RouteGate::kDev, ResetPrefixCache,
               "Empties the prefix cache."),
      OnWorker("/reset_mm_cache", {"POST"}, RouteGate::kDev, ResetImageCache,
               "Empties the cache of processed images.", "text"),
      OnWorker("/reset_encoder_cache", {"POST"}, RouteGate::kDev, ResetImageRows,
               "Empties the cache of image rows, which the model's tower computed.", "text"),
  };
}

}  // namespace sluice
