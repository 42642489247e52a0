// Statistics of the engine, for metrics and logs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request.h"
#include "speculation/speculation_config.h"

namespace sluice {

// Reported for each step, and once without tokens when the engine becomes idle, so that the gauges
// return to zero.
struct StepStats {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t used_blocks = 0;  // blocks that sequences use
  int64_t total_blocks = 0;
  // Slots for recurrent states: slots of running sequences, slots with snapshots, and the total. 0
  // if sequences have no states.
  int64_t held_states = 0;
  int64_t kept_states = 0;
  int64_t total_states = 0;
  // Counts of this step:
  int64_t prompt_tokens = 0;  // computed, not taken from the cache
  // Computed prompt tokens that no earlier step counted, here or in prefix_hits. So over all steps,
  // each prompt token counts once per sequence, even if the sequence is preempted.
  int64_t new_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t prefix_queries = 0;  // prompt tokens looked up in the prefix index
  int64_t prefix_hits = 0;     // tokens found there
  // Tokens that were looked up in the tiers, and tokens that were found there. The latter also
  // count in prefix_hits.
  int64_t tier_queries = 0;
  int64_t tier_hits = 0;
  int64_t drafts = 0;        // number of sequences whose draft tokens were verified
  int64_t draft_tokens = 0;  // number of draft tokens that were verified
  // Number of accepted draft tokens, by their index among the draft tokens of a sequence.
  std::array<int16_t, kMaxSpeculativeTokens> accepted_tokens = {};
  // Number of steps that a device replayed as graphs since the last report.
  int64_t replayed = 0;
  int64_t in_flight = 0;  // number of steps in flight when this one ended, including it
  // From planning, or from the end of the previous step if that is later, to sampled tokens.
  double step_seconds = 0;
  double model_seconds = 0;  // the part of this time inside Model::Begin and Finish
};

// How one sequence of a request ended.
struct SequenceStats {
  FinishReason reason = FinishReason::kStop;
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
};

// Describes a request whose last sequence has ended.
struct RequestStats {
  FinishReason reason = FinishReason::kStop;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;  // sum over all sequences
  int64_t max_tokens = 0;
  std::vector<SequenceStats> sequences;
  double queue_seconds = 0;      // arrival to first scheduled
  double prefill_seconds = 0;    // first scheduled to first token
  double decode_seconds = 0;     // first to last token
  double inference_seconds = 0;  // first scheduled to last token
  double total_seconds = 0;      // from arrival to the last token, abort or error
  // From arrival to the first token; nullopt if there was no token.
  std::optional<double> first_token_seconds;
};

// Called on the engine's thread, OnFinished on any thread; must not block. A step is reported here
// before its results go to the sinks, so an answer is already counted when the client receives it.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void OnStep(const StepStats& stats) = 0;
  // First token of a sequence, or the prompt's vector.
  virtual void OnFirstToken(double seconds_since_arrival) = 0;
  // Time between two updates of a sequence.
  virtual void OnInterToken(double seconds) = 0;
  virtual void OnFinished(const RequestStats& stats) = 0;
};

}  // namespace sluice
