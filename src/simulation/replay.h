// Runs requests through the scheduler at virtual time: steps take what StepClock says, and nothing
// waits.
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
  int64_t input = 0;   // tokens
  int64_t output = 0;  // tokens
  // Content of the prompt: one id for each `hash_tokens` tokens. Prompts whose first ids are equal
  // share that prefix. Empty: it shares none.
  std::vector<int64_t> hash_ids = {};
};
// Tokens for which an id of ReplayRequest::hash_ids stands: Mooncake's blocks.
inline constexpr int64_t kHashTokens = 512;

// Limits of a request, in seconds, and the share of requests that must keep them.
struct ServiceLevel {
  double ttft = std::numeric_limits<double>::infinity();
  double tpot = std::numeric_limits<double>::infinity();
  double share = 1;  // of the requests
};

struct ReplayOptions {
  SchedulerLimits limits;
  int64_t num_blocks = 0;
  bool prefix_caching = true;
  // Not 0: so many requests run at a time, and the next begins when one ends; their arrivals are
  // ignored.
  int64_t concurrency = 0;
  // Ends as soon as it is certain that too few requests keep it.
  std::optional<ServiceLevel> level = std::nullopt;
};

struct ReplayedRequest {
  double ttft = 0;     // seconds from its arrival to its first token
  double tpot = 0;     // seconds per further token
  double latency = 0;  // seconds from its arrival to its last token
  // The amounts of the steps in these times, for fits.
  StepParts ttft_parts{}, tpot_parts{};
};

struct ReplayResult {
  std::vector<ReplayedRequest> requests;  // in the order given
  double seconds = 0;                     // from the first arrival to the last token
  int64_t output_tokens = 0;
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int64_t cached_tokens = 0;  // of prompts, found in the prefix cache
  bool was_ended = false;     // as too few requests kept ReplayOptions::level

  double output_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
};

// kResourceExhausted if a request needs more blocks than there are; kInvalidArgument for one
// without tokens.
Result<ReplayResult> Replay(const StepClock& clock, const ReplayOptions& options,
                            std::span<const ReplayRequest> requests);

// The mean of a figure of all requests.
double MeanOf(const ReplayResult& result, double ReplayedRequest::*figure);

}  // namespace sluice
