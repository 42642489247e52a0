// POST /v1/chat/completions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/openai_answer.h"
#include "server/api/sampling_fields.h"

namespace sluice {

// What is rendered into a prompt: shared with /tokenize.
struct ConversationFields {
  json::Value messages;
  json::Value tools;                 // null: none
  json::Value documents;             // null: none
  json::Value chat_template_kwargs;  // an object or null
  std::optional<std::string> chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
};

struct ChatRequest {
  SamplingFields sampling;
  ConversationFields conversation;
  bool echo = false;
  bool return_prompt_text = false;
  std::optional<std::vector<int64_t>> prompt_ids;  // trtllm-serve: instead of the rendered messages
};

ApiResult<ChatRequest> DecodeChatRequest(const json::Value& body, const ServerConfig& config);

// Several conversations in `messages`, one answer each; what else the body says holds for all.
struct BatchChatRequest {
  ChatRequest common;
  std::vector<json::Value> conversations;  // the messages of each
};
ApiResult<BatchChatRequest> DecodeBatchChatRequest(const json::Value& body,
                                                   const ServerConfig& config);

// Reads and checks `messages` and its companions.
ConversationFields ReadConversation(FieldReader& reader);
// The prompt's text of `messages`, with all else as `conversation` says. 400: no template, a
// template that raises, messages that it cannot take.
ApiResult<std::string> RenderConversation(const ConversationFields& conversation,
                                          const json::Value& messages, const ModelContext& model);

struct ChatAnswerOptions {
  AnswerOptions common;
  bool return_prompt_text = false;
  struct Conversation {
    std::string role = "assistant";
    std::string echo;  // text in front of the answer
    std::string prompt_text;
    std::vector<int32_t> prompt_tokens;
  };
  std::vector<Conversation> conversations;  // several only in a batch
};

std::unique_ptr<AnswerWriter> MakeChatAnswer(ChatAnswerOptions options,
                                             std::shared_ptr<ResponseWriter> writer);

}  // namespace sluice
