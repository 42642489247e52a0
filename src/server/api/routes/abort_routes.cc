// POST /abort_requests: aborts the requests with the given ids, or all.
#include <fmt/format.h>

#include "server/api/common/field_reader.h"
#include "server/api/common/request_body.h"
#include "server/api/context/route_table.h"

namespace sluice {
namespace {

ApiStatus AbortRequests(const RouteCall& call) {
  std::vector<std::string> ids;
  if (!call.request.body.empty()) {
    API_ASSIGN_OR_RETURN(const json::Value body, ParseRequestBody(call.request));
    if (!body.is_object()) return NotAnObject(body);
    std::vector<FieldError> errors;
    FieldReader reader(body, "body", &errors);
    reader.Read("request_ids", ids, {.nullable = true});
    if (!errors.empty()) return ValidationFailed(errors);
  }
  const int count = call.api.active->Abort(ids);
  call.client->Send(JsonResponse(fmt::format(R"({{"status":"aborted","aborted":{}}})", count)));
  return {};
}

}  // namespace

std::vector<Route> AbortRoutes() {
  return {OnWorker("/abort_requests", {"POST"}, RouteGate::kDev, AbortRequests, "Ends requests.")};
}

}  // namespace sluice
