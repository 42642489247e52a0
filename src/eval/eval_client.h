// Sends questions to a server concurrently and collects the answers.
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
  std::optional<bool> add_special_tokens;  // for texts; absent: the server's default
  int num_concurrent = 16;                 // maximum requests in flight
  int max_retries = 3;                     // per request, while the server is unavailable
  double timeout_seconds = 300;            // per request
};

// Thread safety: called from any thread, one call at a time.
using EvalProgress = std::function<void(int64_t done, int64_t total)>;

// Returns the answers in the order of `prompts` (texts, or lists of messages), decoded greedily.
// The first request that fails after its retries ends the run with its error.
Result<std::vector<std::string>> AskPrompts(const HttpClient& client,
                                            const std::vector<json::Value>& prompts,
                                            const EvalRequestOptions& options,
                                            const EvalProgress& progress);

}  // namespace sluice
