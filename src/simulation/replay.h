// Runs requests through the scheduler in virtual time: each step takes the time that StepClock
// predicts, and the program does not wait.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "scheduler/scheduler.h"
#include "simulation/step_clock.h"

namespace sluice {

struct ReplayRequest {
  double arrival = 0;  // seconds, ascending
  int64_t input = 0;   // length of the prompt in tokens
  int64_t output = 0;  // length of the answer in tokens
  // Ids that identify the prompt's content, one per kHashTokens tokens. Prompts whose first ids are
  // equal share that prefix. Empty: the prompt shares no prefix.
  std::vector<int64_t> hash_ids = {};
};
// Number of tokens per id in ReplayRequest::hash_ids, as in Mooncake's traces.
inline constexpr int64_t kHashTokens = 512;

// Maximum times of a request in seconds, and the share of requests that must meet them.
struct ServiceLevel {
  double ttft = std::numeric_limits<double>::infinity();
  double tpot = std::numeric_limits<double>::infinity();
  double share = 1;  // share of the requests that must meet the times
};

struct ReplayOptions {
  SchedulerLimits limits;
  int64_t num_blocks = 0;
  bool prefix_caching = true;
  // > 0: this many requests run at a time, and the next one starts when one ends; arrival times are
  // ignored.
  int64_t concurrency = 0;
  // The replay ends as soon as it is certain that too few requests will meet this level.
  std::optional<ServiceLevel> level = std::nullopt;
};

struct ReplayedRequest {
  double ttft = 0;     // seconds from its arrival to its first token
  double tpot = 0;     // seconds per further token
  double latency = 0;  // seconds from its arrival to its last token
  // The amounts of work within ttft and tpot, for fitting factors.
  StepParts ttft_parts{}, tpot_parts{};
};

struct ReplayResult {
  std::vector<ReplayedRequest> requests;  // in the caller's order
  double seconds = 0;                     // from the first arrival to the last token
  int64_t output_tokens = 0;
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int64_t cached_tokens = 0;  // tokens of prompts that were found in the prefix cache
  // Whether the replay ended early because too few requests met ReplayOptions::level.
  bool was_ended = false;

  double output_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
};

// Replays all requests. kResourceExhausted if a request needs more blocks than the cache has;
// kInvalidArgument if a request has no tokens.
Result<ReplayResult> Replay(const StepClock& clock, const ReplayOptions& options,
                            std::span<const ReplayRequest> requests);

// Returns the mean of a figure over all requests.
double MeanOf(const ReplayResult& result, double ReplayedRequest::*figure);

}  // namespace sluice
