// POST /v1/completions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/openai_answer.h"
#include "server/api/sampling_fields.h"

namespace sluice {

struct CompletionRequest {
  SamplingFields sampling;
  // One of these two: text or token ids, one entry a prompt.
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  bool echo = false;
  bool add_special_tokens = true;
  bool detokenize = true;
};

// A parsed body as a request, or what is wrong with it, in vLLM's words.
ApiResult<CompletionRequest> DecodeCompletionRequest(const json::Value& body,
                                                     const ServerConfig& config);

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
