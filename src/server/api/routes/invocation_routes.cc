// POST /invocations: the route through which SageMaker calls a model.
#include "server/api/context/route_table.h"
#include "server/api/openai/generate.h"

namespace sluice {
namespace {

ApiStatus Invoke(const RouteCall& call, const json::Value& body) {
  return body.Find("messages") != nullptr ? AnswerChat(call, body) : AnswerCompletion(call, body);
}

}  // namespace

std::vector<Route> InvocationRoutes() {
  return {
      WithBody("/invocations", Invoke,
               "Like /v1/chat/completions if the request has messages, else like /v1/completions.",
               "InvocationRequest", "")};
}

}  // namespace sluice
