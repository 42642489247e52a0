// Routes of vLLM that this server lacks, or has only with an option. Each has a fixed answer.
#include <algorithm>
#include <iterator>

#include "server/api/context/route_table.h"

namespace sluice {
namespace {

struct RefusedRoute {
  std::string_view path;
  std::string_view method;
  int status;
  const char* type;
  const char* message;
  RouteGate gate = RouteGate::kAlways;
};

constexpr const char* kNoScaleOut =
    "Scale-out endpoints are not part of this server; use /v1/completions or /v1/chat/completions.";

constexpr RefusedRoute kRefusals[] = {
    {"/v1/completions/render", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/v1/chat/completions/render", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/v1/responses/render", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/v1/messages/render", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/v1/completions/derender", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/v1/chat/completions/derender", "POST", 403, "PermissionDeniedError", kNoScaleOut},
    {"/inference/v1/generate", "POST", 403, "PermissionDeniedError",
     "/inference/v1/generate is served only with --enable-scale-out.", RouteGate::kNoScaleOut},
    {"/generative_scoring", "POST", 400, "BadRequestError",
     "/generative_scoring is not served; use /v1/completions with echo and logprobs."},
    {"/scale_elastic_ep", "POST", 400, "Bad Request",
     "This server is one engine in one process and cannot be scaled."},
};

ApiStatus Refuse(const RouteCall& call) {
  const RefusedRoute& refusal = *std::find_if(
      std::begin(kRefusals), std::end(kRefusals),
      [&](const RefusedRoute& candidate) { return candidate.path == call.route.path; });
  ApiError error;
  error.status = refusal.status;
  error.type = refusal.type;
  error.message = refusal.message;
  return tl::unexpected<ApiError>(std::move(error));
}

}  // namespace

std::vector<Route> RefusedRoutes() {
  std::vector<Route> routes;
  for (const RefusedRoute& refusal : kRefusals)
    routes.push_back(OnIoThread(refusal.path, {refusal.method}, refusal.gate, Refuse));
  return routes;
}

}  // namespace sluice
