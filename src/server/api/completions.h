// The answer to POST /v1/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/openai_answer.h"

namespace sluice {

struct CompletionAnswerOptions {
  AnswerOptions common;
  bool echo = false;
  bool drop_output = false;  // max_tokens 0: the one token that is computed is not shown
  bool detokenize = true;    // false: ids instead of text
  struct PromptInfo {
    std::vector<int32_t> tokens;
    std::string text;  // to be echoed
  };
  std::vector<PromptInfo> prompts;
};

std::unique_ptr<AnswerWriter> MakeCompletionAnswer(CompletionAnswerOptions options,
                                                   std::shared_ptr<ResponseWriter> writer);

}  // namespace sluice
