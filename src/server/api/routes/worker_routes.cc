// GET /get_world_size, POST /collective_rpc: vLLM's queries to its worker processes.
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus WorldSize(const RouteCall& call) {
  call.client->Send(JsonResponse(R"({"world_size":1})"));
  return {};
}

ApiStatus CollectiveRpc(const RouteCall&) {
  ApiError error;
  error.type = "Bad Request";
  error.message = "This server has no worker processes whose methods could be called.";
  return tl::unexpected<ApiError>(std::move(error));
}

}  // namespace

std::vector<Route> WorkerRoutes() {
  return {
      OnIoThread("/get_world_size", {"GET"}, RouteGate::kDev, WorldSize,
                 "How many devices share the model."),
      OnWorker("/collective_rpc", {"POST"}, RouteGate::kDev, CollectiveRpc),
  };
}

}  // namespace sluice
