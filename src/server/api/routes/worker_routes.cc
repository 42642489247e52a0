// GET /get_world_size, POST /collective_rpc: what vLLM asks of its worker processes.
#include "server/api/request_body.h"
#include "server/api/route_table.h"

namespace sluice {
namespace {

ApiStatus WorldSize(const RouteCall& call) {
  call.client->Send(JsonResponse(R"({"world_size":1})"));
  return {};
}

ApiStatus CollectiveRpc(const RouteCall& call) {
  ApiError error;
  error.type = "Bad Request";
  const ApiResult<json::Value> body = ParseJsonAsPython(call.request.body);
  if (!body) {
    error.message = "JSON decode error: " + body.error().message;
  } else if (!body->is_object() || body->Find("method") == nullptr) {
    error.message = "Missing 'method' in request body";
  } else {
    error.message = "This server has no worker processes whose methods could be called.";
  }
  return tl::unexpected<ApiError>(std::move(error));
}

}  // namespace

std::vector<Route> WorkerRoutes() {
  return {
      {.path = "/get_world_size",
       .methods = {"GET"},
       .gate = RouteGate::kDev,
       .summary = "How many devices share the model.",
       .on_io_thread = WorldSize},
      {.path = "/collective_rpc",
       .methods = {"POST"},
       .gate = RouteGate::kDev,
       .on_worker = CollectiveRpc},
  };
}

}  // namespace sluice
