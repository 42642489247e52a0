// The request of POST /v1/completions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/sampling_fields.h"

namespace sluice {

struct CompletionRequest {
  SamplingFields sampling;
  // At most one of these is not empty: prompts as text, or as token ids.
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  // Prompts given as embeddings, which precede the other prompts. Base64 (see PromptFromRows), as
  // views into the body.
  std::vector<std::string_view> rows;
  bool echo = false;
  bool add_special_tokens = true;
  bool detokenize = true;
};

// Reads a parsed body, which must outlive the request. Errors: 400 for a field of the wrong type or
// value, and for a feature that this server lacks.
ApiResult<CompletionRequest> ReadCompletionRequest(const json::Value& body,
                                                   const ServerConfig& config);

}  // namespace sluice
