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
  bool chat = false;  // whether prompts are lists of messages rather than texts
  int64_t max_tokens = 256;
  std::vector<std::string> stop;
  int64_t seed = 1234;
  std::optional<bool> add_special_tokens;  // only for texts; absent: the server's default
  int num_concurrent = 16;                 // maximum number of requests in flight
  int max_retries = 3;                     // for each request, while the server is unavailable
  double timeout_seconds = 300;            // for each request
};

// Receives the number of questions that are done, and their total number. Thread safety: called
// from any thread, one call at a time.
using EvalProgress = std::function<void(int64_t done, int64_t total)>;

// Returns the answers to `prompts` (texts, or lists of messages) in their order, decoded greedily.
// The first request that still fails after its retries ends the run with its error.
Result<std::vector<std::string>> AskPrompts(const HttpClient& client,
                                            const std::vector<json::Value>& prompts,
                                            const EvalRequestOptions& options,
                                            const EvalProgress& progress);

}  // namespace sluice
