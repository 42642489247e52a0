// The answer to POST /v1/chat/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/openai_answer.h"

namespace sluice {

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
