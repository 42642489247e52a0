// Asks a server many questions at a time and gathers the answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/http_client.h"

namespace sluice {

struct EvalRequestOptions {
  std::string model;
  bool chat = false;  // prompts are messages, not texts
  int64_t max_tokens = 256;
  std::vector<std::string> stop;
  int64_t seed = 1234;
  std::optional<bool> add_special_tokens;  // for texts; absent: the server's choice
  int num_concurrent = 16;                 // requests under way
  int max_retries = 3;                     // of one request, while the server is not available
  double timeout_seconds = 300;            // of one request
};

// Thread safety: called from any thread, one at a time.
using EvalProgress = std::function<void(int64_t done, int64_t total)>;

// The answers in the order of `prompts` (texts, or lists of messages), decoded greedily. The first
// request that fails for good ends the run with its error.
Result<std::vector<std::string>> AskPrompts(const HttpClient& client,
                                            const std::vector<json::Value>& prompts,
                                            const EvalRequestOptions& options,
                                            const EvalProgress& progress);

}  // namespace sluice
