#include "engine/drafter.h"

#include <algorithm>

namespace sluice {
namespace {

// Up to this many rows, a pass takes as long as a pass with one row per sequence.
constexpr size_t kFewRows = 32;

}  // namespace

double Drafter::SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SamplingParams Drafter::WithoutLogprobs(SamplingParams params) {
  params.logprobs.reset();
  params.prompt_logprobs.reset();
  return params;
}

SequenceSampling Drafter::SamplingOf(const Job& job) {
  const SamplingParams& params = *job.state->params;
  return {.params = &params,
          .seed = job.sampling->seed,
          .end_tokens = job.sampling->end_tokens,
          .counts = HasPenalties(params) ? job.sampling->counts : TokenCounts()};
}

void Drafter::LearnPass(Clock::time_point start, size_t num_sequences, size_t num_rows) {
  if (num_rows <= std::max(kFewRows, 4 * num_sequences))
    policy_.LearnPass(static_cast<int64_t>(num_sequences), SecondsSince(start));
  else
    policy_.LearnCatchUp(SecondsSince(start), static_cast<int64_t>(num_rows));
}

}  // namespace sluice
