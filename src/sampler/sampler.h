// Chooses the next token of every sequence of a step, on all threads of the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "constraints/sequence_matcher.h"
#include "sampler/draw.h"
#include "sampler/logits_processor.h"
#include "sampler/sampling_params.h"
#include "sampler/token_counts.h"
#include "sampler/token_logprobs.h"

namespace sluice {

// A sequence's state between steps.
struct SequenceSampling {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;               // of this sequence (the request's seed + j)
  SharedList<int32_t> end_tokens;  // masked before min_tokens
  TokenCounts counts;
  // Null: no constraint. Shared with the queue that prepares masks between steps.
  std::shared_ptr<SequenceMatcher> matcher = nullptr;
};

// A token to choose.
struct SampleJob {
  std::span<const float> logits;  // raw, [vocab_size]; not changed
  SequenceSampling* sequence = nullptr;
  TokenHistory history;
  // Out: `error` is empty on success; otherwise this sequence must end. Other sequences are not
  // affected.
  int32_t token = -1;
  std::string_view error;
  TokenLogprobs logprobs;  // if params->logprobs is set
  // The model has drawn the token (SetDrawn): Sample skips the job.
  bool is_drawn = false;
  bool is_request_error = false;  // `error` is the request's fault: its settings allow no token
  // Out: the constraint needs more time than the step has. No token was chosen: the row must be
  // computed again once the matcher has its mask.
  bool is_late = false;
  // In: maxima of the logits' blocks (kernels/block_maxima.h), with which fewer logits are read;
  // empty: none.
  std::span<const float> maxima = {};
};

// The logprobs of a prompt token, given the logits before it.
struct PromptLogprobJob {
  std::span<const float> logits;
  int32_t token = 0;
  int32_t num_top = 0;     // -1: the whole vocabulary
  std::string_view error;  // out
  TokenLogprobs logprobs;  // out
};

// Stores the model's draw for job.sequence. `logprobs` and `top` are only read if params->logprobs
// is set.
void SetDrawn(SampleJob& job, int32_t token, kernels::DrawError error,
              const kernels::DrawnLogprobs& logprobs, std::span<const kernels::TopLogit> top);

// Semantics: tokens that the sequence's constraint forbids become -infinity, for logprobs, too;
// logprobs follow params->logprobs_mode; then ProcessLogits, where a constraint that allows only
// end tokens overrules min_tokens; temperature 0 takes the largest logit (the lowest id of equals),
// else DrawToken with the random number of (seed, number of output tokens so far). A result depends
// only on its own job. Thread safety: one call at a time. After construction, only logprobs, new
// penalty counts, matchers and the first use of allowed_token_ids on a thread allocate memory.
class Sampler {
 public:
  Sampler(int64_t vocab_size, int num_threads);
  // Number of bytes of all threads' scratch memory.
  static int64_t ScratchBytes(int64_t vocab_size, int num_threads);

  void Sample(ThreadPool& pool, std::span<SampleJob> jobs);
  void PromptLogprobs(ThreadPool& pool, std::span<PromptLogprobJob> jobs);

 private:
  struct Scratch {
    explicit Scratch(int64_t vocab_size);
    std::vector<float> processed;
    std::vector<float> constrained;
    std::vector<uint32_t> mask;
    DrawScratch draw;
  };
  // Chooses the largest logit without a mask, if the matcher accepts it.
  static SequenceMatcher::Answer TakesLargest(SampleJob& job);
  // The logits that `job` draws from, with tokens that its constraint forbids masked. Leaves `mask`
  // as filled by the matcher. Empty if the constraint cannot be followed (job.error), or not now
  // (job.is_late).
  static std::span<const float> Constrain(SampleJob& job, Scratch& scratch);
  void SampleOne(SampleJob& job, Scratch& scratch) const;

  std::vector<std::unique_ptr<Scratch>> scratch_;  // by thread
};

}  // namespace sluice
