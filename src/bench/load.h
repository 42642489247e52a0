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
  std::shared_ptr<const ClientTls> tls = {};  // used for https
  std::string path;                           // "/v1/completions"
  Api api = Api::kCompletions;
  bool stream = true;
  std::string model;                // "": the server's default model
  std::vector<std::string> models;  // if not empty, each request uses one of these instead of
                                    // `model`
  bool random_models = true;        // true: chosen at random; false: round-robin
  bool ignore_eos = false;
  std::optional<int64_t> logprobs;
  // Additional members of every request body. They replace members that are set otherwise.
  json::Value extra_body{json::Value::Object{}};
  std::vector<std::pair<std::string, std::string>> headers;
  std::string request_id_prefix;
  std::optional<int64_t> max_concurrency;
  bool keep_alive = true;
  uint64_t seed = 0;  // used by random_models
};

// An event of a stream that contains a choice.
struct Chunk {
  double gap = 0;       // seconds since the previous chunk, or since the start for the first one
  uint32_t bytes = 0;   // length of its text
  int64_t counted = 0;  // number of tokens up to its end, as the server counts them; 0: not
                        // reported
};

// The measurements of one request. Times are in seconds.
struct RequestRecord {
  bool ended = false;  // false: was still running, or not sent, when the run was interrupted
  bool success = false;
  std::string error;          // "" on success
  double start = 0;           // on the monotonic clock, just before the request was sent
  double queue_time = 0;      // from its planned time to `start`
  double ttft = 0;            // from `start` to the first event with a choice
  double latency = 0;         // from `start` to the last event with a choice (in a chat, or with
                              // usage)
  double in_flight = 0;       // from `start` to the request's end, successful or not
  std::vector<Chunk> chunks;  // the chunks of a stream
  int64_t prompt_tokens = 0;  // number that the server reports, or else the number in the data set
  std::optional<int64_t> output_tokens;  // as the server counts them
  std::string text;                      // the generated text
};

struct RateChange {
  int64_t rate = 0;
  double wall_seconds = 0;  // seconds since 1970
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of the prompts
  double duration = 0;  // from the start of the first request to the end of the last one
  std::vector<RateChange> rate_changes;  // the changes of the rate if there is a ramp
  bool interrupted = false;
};

// Runs until every request has ended or `cancel_fd` (-1: none) is readable. `on_progress`: receives
// the number of requests that have ended. kUnavailable only if nothing can be sent at all; the
// server's failures are in the records.
Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<Prompt>& prompts,
                           const std::vector<Arrival>& arrivals,
                           const std::function<void(int64_t)>& on_progress, int cancel_fd);

// Returns the body of the request for `prompt`.
std::string RequestBody(const LoadOptions& options, const Prompt& prompt, std::string_view model);

}  // namespace sluice::bench
