// POST /v1/messages and /v1/messages/count_tokens, as in Anthropic's API. The dispatcher sends
// errors in the shape of that API.
#include <fmt/format.h>

#include "server/api/anthropic/messages_request.h"
#include "server/api/context/route_table.h"
#include "server/api/openai/chat_request.h"
#include "server/api/openai/generate.h"
#include "server/api/request/prompt.h"

namespace sluice {
namespace {

// In the `text` of an error, replaces the schema's location in the chat request by its location in
// `body`.
void NameFormat(const json::Value& body, std::string& text) {
  constexpr std::string_view kNameInChat = "response_format.json_schema";
  if (!text.starts_with(kNameInChat)) return;
  const bool is_beta = body.Find("output_format") != nullptr;
  text.replace(0, kNameInChat.size(), is_beta ? "output_format" : "output_config.format");
}

ApiResult<ChatRequest> ReadMessagesRequest(const RouteCall& call, const json::Value& body,
                                           MessagesEndpoint endpoint) {
  // The chat request made from the body takes about as much memory as the body.
  if (const auto& memory = call.request.memory; memory != nullptr)
    API_RETURN_IF_ERROR(ReserveMemory(memory, 2 * memory->bytes()));
  API_ASSIGN_OR_RETURN(const json::Value chat, ChatBodyOf(body, call.api.config, endpoint));
  ApiResult<ChatRequest> request =
      ReadChatRequest(chat, call.api.config, call.model->takes_tools());
  if (!request) {
    NameFormat(body, request.error().message);
  } else if (request->sampling.constraint) {
    NameFormat(body, request->sampling.constraint->place);
  }
  if (request) request->conversation.own_places = true;
  return request;
}

ApiStatus StartMessages(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(const ChatRequest request,
                       ReadMessagesRequest(call, body, MessagesEndpoint::kMessages));
  return StartChat(call, request, MakeMessagesWriter);
}

ApiStatus SendTokenCount(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(const ChatRequest request,
                       ReadMessagesRequest(call, body, MessagesEndpoint::kCountTokens));
  API_RETURN_IF_ERROR(call.model->CheckName(request.sampling.model));
  API_ASSIGN_OR_RETURN(
      const RenderedConversation rendered,
      RenderConversation(call, request.conversation, request.conversation.messages));
  const std::string& text = rendered.text;
  API_RETURN_IF_ERROR(CheckCharacters(text, *call.model));
  API_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                       EncodeText(*call.model, text, /*add_special_tokens=*/false,
                                  [&call] { return call.client->closed(); }));
  const size_t count = tokens.size();
  call.client->Send(JsonResponse(
      fmt::format(R"({{"input_tokens":{},"context_management":{{"original_input_tokens":{}}}}})",
                  count, count)));
  return {};
}

}  // namespace

std::vector<Route> MessagesRoutes() {
  return {
      WithBody("/v1/messages", StartMessages,
               "Answer a conversation, in the shape of Anthropic's API.", "MessagesRequest",
               "AnthropicMessage"),
      WithBody("/v1/messages/count_tokens", SendTokenCount,
               "Counts the prompt tokens of a conversation.", "CountTokensRequest", "TokenCount"),
  };
}

}  // namespace sluice
