// POST /v1/chat/completions and /v1/chat/completions/batch.
#include <optional>
#include <span>

#include "server/api/answer/answer_plan.h"
#include "server/api/answer/parsing_plan.h"
#include "server/api/context/route_table.h"
#include "server/api/openai/chat_request.h"
#include "server/api/openai/generate.h"

namespace sluice {
namespace {

// Returns the role of the answer, and the text of the conversation that the answer repeats.
AnswerOptions::Prompt ShownOf(const ChatRequest& request, const json::Value& messages,
                              const ServerConfig& config) {
  AnswerOptions::Prompt shown;
  shown.role = config.response_role;
  if (messages.as_array().empty()) return shown;
  const json::Value& last = messages.as_array().back();
  const std::string& role = last.Find("role")->as_string();
  if (!request.conversation.add_generation_prompt) shown.role = role;
  const json::Value* content = last.Find("content");
  if (request.echo && role == shown.role && content != nullptr && content->is_string())
    shown.echo = content->as_string();
  return shown;
}

// Starts an answer to each list of messages in `conversations`. `request` contains all other
// fields.
ApiStatus StartChats(const RouteCall& call, const ChatRequest& request,
                     std::span<const json::Value> conversations, WriterFactory* make_writer) {
  const ServerConfig& config = call.api.config;
  const SamplingFields& fields = request.sampling;
  API_ASSIGN_OR_RETURN(AnswerPlan plan, PlanAnswer(call, "chatcmpl-", fields));
  plan.options.return_prompt_text = request.return_prompt_text;
  if (request.tools.choice != ToolChoice::kNone && fields.use_beam_search)
    return BadParameter(
        "use_beam_search and tools: a beam search does not parse tool calls; omit one of them, or "
        "use tool_choice none",
        "tools");
  API_RETURN_IF_ERROR(
      PlanParsing(request.tools, request.conversation, request.include_reasoning, plan));
  std::string logged;
  size_t repeated = 0;  // number of bytes of the request that each of its n choices repeats
  for (const json::Value& messages : conversations) {
    AnswerOptions::Prompt shown = ShownOf(request, messages, config);
    Prompt prompt;
    if (request.prompt_ids) {
      API_ASSIGN_OR_RETURN(prompt, PromptFromIds(*request.prompt_ids, fields, *call.model));
    } else {
      API_ASSIGN_OR_RETURN(RenderedConversation rendered,
                           RenderConversation(call, request.conversation, messages));
      if (request.return_prompt_text) shown.text = rendered.text;
      if (config.log_requests && plan.options.prompts.empty()) logged = rendered.text;
      API_ASSIGN_OR_RETURN(prompt, PromptFromConversation(std::move(rendered),
                                                          request.conversation.add_special_tokens,
                                                          fields, *call.model));
    }
    repeated += shown.echo.size() + shown.text.size();
    if (fields.return_token_ids) repeated += kTokenIdBytes * prompt.tokens.size();
    API_RETURN_IF_ERROR(AddPrompt(plan, fields, std::move(prompt), std::move(shown)));
  }
  // The repeated bytes are limited, because a stream sends all repeated text at its beginning.
  if (repeated * static_cast<size_t>(fields.n) > config.max_answer_bytes)
    return tl::unexpected<ApiError>(AnswerTooLarge(config.max_answer_bytes));
  return StartAnswer(call, make_writer, std::move(plan), fields, logged);
}

WriterFactory* ChatWriterOf(ApiDialect dialect) {
  return dialect == ApiDialect::kTrtllm ? MakeTrtllmChatWriter : MakeVllmChatWriter;
}

ApiStatus BatchChat(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(const BatchChatRequest request, ReadBatchChatRequest(body, call.api.config));
  return StartChats(call, request.common, request.conversations,
                    ChatWriterOf(call.api.config.dialect));
}

}  // namespace

ApiStatus StartChat(const RouteCall& call, const ChatRequest& request, WriterFactory* make_writer) {
  return StartChats(call, request, {&request.conversation.messages, 1}, make_writer);
}

ApiStatus AnswerChat(const RouteCall& call, const json::Value& body) {
  API_ASSIGN_OR_RETURN(const ChatRequest request,
                       ReadChatRequest(body, call.api.config, call.model->takes_tools()));
  return StartChat(call, request, ChatWriterOf(call.api.config.dialect));
}

std::vector<Route> ChatRoutes() {
  return {
      WithBody("/v1/chat/completions", AnswerChat, "Answer a conversation.", "ChatRequest",
               "ChatCompletion"),
      WithBody("/v1/chat/completions/batch", BatchChat, "Answer several conversations.",
               "BatchChatRequest", "ChatCompletion"),
  };
}

}  // namespace sluice
