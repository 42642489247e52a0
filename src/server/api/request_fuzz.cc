// Fuzz target: reads arbitrary bytes as the body of a completion, a chat, a message, a response and
// a decision. Refusals must have status 4xx and a JSON body.
#include "base/fuzz_input.h"
#include "server/api/anthropic/messages_request.h"
#include "server/api/common/request_body.h"
#include "server/api/openai/chat_request.h"
#include "server/api/openai/completion_request.h"
#include "server/api/openai/decision_request.h"
#include "server/api/responses/response_items.h"
#include "server/api/responses/responses_request.h"

namespace {

using namespace sluice;

void CheckError(const ApiError& error) {
  fuzz::Require(error.status == 400);
  fuzz::Require(!error.message.empty() || !error.detail.empty());
  for (const ApiDialect dialect : {ApiDialect::kVllm, ApiDialect::kTrtllm}) {
    fuzz::Require(json::Parse(ErrorResponse(error, dialect).body).has_value());
    fuzz::Require(json::Parse(AnthropicErrorResponse(error, dialect).body).has_value());
  }
}

// Checks a response's items, the messages made from them, and the names of tools in namespaces.
void CheckResponses(const json::Value& body, const ServerConfig& config) {
  const auto request = ReadResponsesRequest(body, config);
  if (!request) return CheckError(request.error());
  for (const json::Value& item : request->items) {
    fuzz::Require(item.Find("id")->is_string());
    fuzz::Require(item.Find("type")->is_string());
  }
  json::Value::Array messages;
  const FindItem no_items = [](const std::string&) { return std::nullopt; };
  const ApiStatus appended = AppendMessages(request->items, no_items, messages);
  if (!appended && appended.error().status != 404) CheckError(appended.error());
  for (const json::Value& message : messages) fuzz::Require(!TextAt(message, "role").empty());
  for (const auto& [flat, tool] : request->namespaced_tools)
    fuzz::Require(flat == FlatName(tool.space, tool.name));
}

// Checks that each option has a label, and that the question has a text.
void CheckDecision(const ApiResult<DecisionRequest>& request) {
  if (!request) return CheckError(request.error());
  fuzz::Require(!request->questions.empty());
  for (const DecisionQuestion& question : request->questions) {
    fuzz::Require(LabelsOf(question).size() == question.options.size());
    fuzz::Require(question.options.size() >= 1 && !TextOf(question).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  HttpRequest request;
  request.method = "POST";
  request.headers = {{"content-type", "application/json"}};
  request.body = fuzz::Text(data, size);
  const auto body = ParseRequestBody(request);
  if (!body) {
    CheckError(body.error());
    return 0;
  }
  static const ServerConfig config;
  if (const auto completion = ReadCompletionRequest(*body, config); !completion)
    CheckError(completion.error());
  if (const auto chat = ReadChatRequest(*body, config, true); !chat) CheckError(chat.error());
  CheckDecision(ReadSystemOneRequest(*body));
  CheckDecision(ReadDecisionRequest(*body));
  for (const auto endpoint : {MessagesEndpoint::kMessages, MessagesEndpoint::kCountTokens}) {
    const auto chat = ChatBodyOf(*body, config, endpoint);
    if (!chat) {
      CheckError(chat.error());
    } else if (const auto read = ReadChatRequest(*chat, config, true); !read) {
      CheckError(read.error());
    }
  }
  for (const ApiDialect dialect : {ApiDialect::kSluice, ApiDialect::kVllm}) {
    ServerConfig of_dialect;
    of_dialect.dialect = dialect;
    CheckResponses(*body, of_dialect);
  }
  return 0;
}
