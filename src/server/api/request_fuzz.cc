// Fuzz target: any bytes as the body of a completion, of a chat and of a message. What is refused
// is refused with 400 and an answer that is JSON.
#include "base/fuzz_input.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/messages_request.h"
#include "server/api/request_body.h"

namespace {

using namespace sluice;

void CheckError(const ApiError& error) {
  fuzz::Require(error.status == 400);
  fuzz::Require(!error.message.empty() || !error.detail.empty());
  for (const ApiDialect dialect : {ApiDialect::kVllm, ApiDialect::kTrtllm})
    fuzz::Require(json::Parse(ErrorResponse(error, dialect).body).has_value());
  fuzz::Require(json::Parse(AnthropicErrorResponse(error).body).has_value());
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
  if (const auto chat = ReadChatRequest(*body, config); !chat) CheckError(chat.error());
  for (const auto endpoint : {MessagesEndpoint::kMessages, MessagesEndpoint::kCountTokens}) {
    const auto chat = ChatBodyOf(*body, config, endpoint);
    if (!chat) {
      CheckError(chat.error());
    } else if (const auto read = ReadChatRequest(*chat, config); !read) {
      CheckError(read.error());
    }
  }
  return 0;
}
