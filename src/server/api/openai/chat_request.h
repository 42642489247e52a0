// The requests of POST /v1/chat/completions and /v1/chat/completions/batch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/api/request/conversation.h"
#include "server/api/request/sampling_fields.h"
#include "server/api/request/tool_fields.h"

namespace sluice {

struct ChatRequest {
  SamplingFields sampling;
  ConversationFields conversation;
  bool echo = false;
  bool return_prompt_text = false;
  ToolFields tools;
  bool include_reasoning = true;  // false: reasoning is dropped
  // trtllm-serve: the prompt as token ids, used instead of the rendered messages.
  std::optional<std::vector<int64_t>> prompt_ids;
};

// Reads a parsed body. Errors: 400 for a field of the wrong type or value, and for a feature that
// this server lacks.
ApiResult<ChatRequest> ReadChatRequest(const json::Value& body, const ServerConfig& config,
                                       bool model_takes_tools);

// Passes the reasoning effort to the template. Template arguments in the request take precedence.
void AddReasoningArguments(std::string effort, const ServerConfig& config, json::Value& kwargs);

// Several conversations, each of which gets its own answer. All other fields apply to each.
struct BatchChatRequest {
  ChatRequest common;
  std::vector<json::Value> conversations;  // the messages of each conversation
};
ApiResult<BatchChatRequest> ReadBatchChatRequest(const json::Value& body,
                                                 const ServerConfig& config);

}  // namespace sluice
