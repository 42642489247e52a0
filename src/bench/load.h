// Sends the requests of a benchmark and writes down when what came back.
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
  std::shared_ptr<const ClientTls> tls = {};  // of https
  std::string path;                           // "/v1/completions"
  Api api = Api::kCompletions;
  bool stream = true;
  std::string model;                // "" to leave it to the server
  std::vector<std::string> models;  // not empty: one of these for each request in its place
  bool random_models = true;        // at random, else in turn
  bool ignore_eos = false;
  std::optional<int64_t> logprobs;
  // Further members of every body, over those above.
  json::Value extra_body{json::Value::Object{}};
  std::vector<std::pair<std::string, std::string>> headers;
  std::string request_id_prefix;
  std::optional<int64_t> max_concurrency;
  bool keep_alive = true;
  uint64_t seed = 0;  // of random_models
};

// An event of a stream that has a choice.
struct Chunk {
  double gap = 0;       // seconds since the one before it; of the first, since the start
  uint32_t bytes = 0;   // of its text
  int64_t counted = 0;  // tokens up to its end, as the server counted them; 0: it did not say
};

// What one request did. Seconds.
struct RequestRecord {
  bool ended = false;  // false: it was still running, or not sent, when the run was interrupted
  bool success = false;
  std::string error;                     // "" for success
  double start = 0;                      // of the monotonic clock, just before it was sent
  double queue_time = 0;                 // between the time it was due and `start`
  double ttft = 0;                       // from `start` to the first event with a choice
  double latency = 0;                    // from `start` to the last event that counts
  double in_flight = 0;                  // from `start` until it had ended, well or not
  std::vector<Chunk> chunks;             // of a stream
  int64_t prompt_tokens = 0;             // as the server counted them, else as the data set did
  std::optional<int64_t> output_tokens;  // as the server counted them
  std::string text;                      // generated
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

// Runs until every request has ended or `cancel_fd` (-1: none) is readable. `on_progress`: ended
// requests. kUnavailable only if nothing can be sent at all; what a server does wrong is in the
// records.
Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<Prompt>& prompts,
                           const std::vector<Arrival>& arrivals,
                           const std::function<void(int64_t)>& on_progress, int cancel_fd);

// The body of the request for `prompt`.
std::string RequestBody(const LoadOptions& options, const Prompt& prompt, std::string_view model);

}  // namespace sluice::bench
