// Sends the requests of a benchmark and records when their answers arrive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/arrivals.h"
#include "bench/dataset.h"
#include "client/client_tls.h"
#include "client/url.h"

namespace sluice::bench {

enum class Api { kCompletions, kChat };

struct LoadOptions {
  Url url;
  std::shared_ptr<const ClientTls> tls = {};  // for https
  std::string path;                           // "/v1/completions"
  Api api = Api::kCompletions;
  bool stream = true;
  std::string model;                // "": the server's default
  std::vector<std::string> models;  // if not empty, each request uses one of these instead
  bool random_models = true;        // chosen at random; false: in turn
  bool ignore_eos = false;
  std::optional<int64_t> logprobs;
  // Additional members of every body; they replace those above.
  json::Value extra_body{json::Value::Object{}};
  std::vector<std::pair<std::string, std::string>> headers;
  std::string request_id_prefix;
  std::optional<int64_t> max_concurrency;
  bool keep_alive = true;
  uint64_t seed = 0;  // for random_models
};

// An event of a stream that contains a choice.
struct Chunk {
  double gap = 0;       // seconds since the previous chunk; for the first, since the start
  uint32_t bytes = 0;   // of its text
  int64_t counted = 0;  // tokens up to its end as counted by the server; 0: not reported
};

// The measurements of one request. Times in seconds.
struct RequestRecord {
  bool ended = false;  // false: still running or not sent when the run was interrupted
  bool success = false;
  std::string error;          // "" for success
  double start = 0;           // monotonic clock, just before it was sent
  double queue_time = 0;      // from its planned time to `start`
  double ttft = 0;            // from `start` to the first event with a choice
  double latency = 0;         // from `start` to the last event with a choice (chat: or usage)
  double in_flight = 0;       // from `start` to its end, successful or not
  std::vector<Chunk> chunks;  // of a stream
  int64_t prompt_tokens = 0;  // as counted by the server, else by the data set
  std::optional<int64_t> output_tokens;  // as counted by the server
  std::string text;                      // the generated text
};

struct RateChange {
  int64_t rate = 0;
  double wall_seconds = 0;  // since 1970
};

struct LoadResult {
  std::vector<RequestRecord> records;    // in the order of the prompts
  double duration = 0;                   // from the first request to the end of the last
  std::vector<RateChange> rate_changes;  // of a ramp
  bool interrupted = false;
};

// Runs until every request has ended or `cancel_fd` (-1: none) is readable. `on_progress`: number
// of ended requests. kUnavailable only if nothing can be sent at all; failures of the server are in
// the records.
Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<Prompt>& prompts,
                           const std::vector<Arrival>& arrivals,
                           const std::function<void(int64_t)>& on_progress, int cancel_fd);

// The body of the request for `prompt`.
std::string RequestBody(const LoadOptions& options, const Prompt& prompt, std::string_view model);

}  // namespace sluice::bench
