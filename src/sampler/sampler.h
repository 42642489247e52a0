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

// The state of one sequence between steps.
struct SequenceSampling {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;               // already of this sequence (seed + j)
  SharedList<int32_t> end_tokens;  // masked before min_tokens
  TokenCounts counts;
  // Null: nothing constrains the answer. Shared with the queue that works on it between steps.
  std::shared_ptr<SequenceMatcher> matcher = nullptr;
};

// One token to choose.
struct SampleJob {
  std::span<const float> logits;  // raw, [vocab_size]; not changed
  SequenceSampling* sequence = nullptr;
  TokenHistory history;
  // Out: `error` is empty on success; otherwise this sequence has to end, the others are
  // unaffected.
  int32_t token = -1;
  std::string_view error;
  TokenLogprobs logprobs;  // where params->logprobs is set
  // The model has drawn the token (SetDrawn): Sample leaves the job as it is.
  bool is_drawn = false;
  bool is_request_error = false;  // of `error`: what the request asks for leaves no token
  // Out: the constraint takes longer than the step has time for. No token was chosen: the row is to
  // be computed again once the matcher has its mask.
  bool is_late = false;
  // In: the maxima of the logits' blocks (kernels/block_maxima.h), so that fewer of the logits are
  // looked at; empty: none.
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

// Stores what a model drew for job.sequence. `logprobs` and `top` are read where params->logprobs
// is set.
void SetDrawn(SampleJob& job, int32_t token, kernels::DrawError error,
              const kernels::DrawnLogprobs& logprobs, std::span<const kernels::TopLogit> top);

// Semantics: what the sequence's constraint forbids becomes -infinity, for logprobs too; logprobs
// as params->logprobs_mode says; ProcessLogits, where a constraint that leaves only end tokens
// overrules min_tokens; temperature 0 takes the largest (the lowest id of equals); else DrawToken
// with the random number of (seed, number of output tokens so far). A result depends on its own job
// alone. Thread safety: one call at a time. After construction only logprobs, new penalty counts,
// matchers and the first use of allowed_token_ids on a thread allocate.
class Sampler {
 public:
  Sampler(int64_t vocab_size, int num_threads);
  // Bytes of the scratch memory of all threads.
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
  // Chooses the largest logit without a mask, if the matcher takes it.
  static SequenceMatcher::Answer TakesLargest(SampleJob& job);
  // What `job` draws from: its logits but for those that its constraint forbids. `mask` is left as
  // the matcher filled it. Empty if the constraint cannot be followed (job.error), or not now
  // (job.is_late).
  static std::span<const float> Constrain(SampleJob& job, Scratch& scratch);
  void SampleOne(SampleJob& job, Scratch& scratch) const;

  std::vector<std::unique_ptr<Scratch>> scratch_;  // by thread
};

}  // namespace sluice
