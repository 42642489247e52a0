// POST /invocations: how SageMaker calls a model.
#include "server/api/context/route_table.h"
#include "server/api/openai/generate.h"

namespace sluice {
namespace {

ApiStatus Invoke(const RouteCall& call, const json::Value& body) {
  return body.Find("messages") != nullptr ? AnswerChat(call, body) : AnswerCompletion(call, body);
}

}  // namespace

std::vector<Route> InvocationRoutes() {
  return {WithBody("/invocations", Invoke,
                   "As /v1/chat/completions with messages, else as /v1/completions.",
                   "InvocationRequest", "")};
}

}  // namespace sluice
