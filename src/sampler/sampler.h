// Chooses the next token of every sequence in a step, on all threads of the pool.
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

// The sampling state of a sequence between steps.
struct SequenceSampling {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;               // the request's seed + the sequence's index in the request
  SharedList<int32_t> end_tokens;  // masked until min_tokens is reached
  TokenCounts counts;
  // Null: no constraint. Shared with the queue that prepares masks between steps.
  std::shared_ptr<SequenceMatcher> matcher = nullptr;
};

// A token to choose.
struct SampleJob {
  std::span<const float> logits;  // raw, [vocab_size]; not changed
  SequenceSampling* sequence = nullptr;
  TokenHistory history;
  // Results. `error` is empty on success; otherwise this sequence must end. Other sequences are not
  // affected.
  int32_t token = -1;
  std::string_view error;
  TokenLogprobs logprobs;  // filled if params->logprobs is set
  // Whether the model has drawn the token itself (SetDrawn). Sample then skips the job.
  bool is_drawn = false;
  bool is_request_error = false;  // whether `error` is the request's fault, because its settings
                                  // allow no token
  // Result. The constraint needs more time than the step has, so no token was chosen: the row must
  // be computed again once the matcher has its mask.
  bool is_late = false;
  // Input. The maximum of each block of logits (kernels/block_maxima.h), with which Sample can skip
  // blocks; empty: unknown.
  std::span<const float> maxima = {};
};

// Computes the logprobs of a prompt token from the logits at the previous position.
struct PromptLogprobJob {
  std::span<const float> logits;
  int32_t token = 0;
  int32_t num_top = 0;     // number of best tokens; -1: the whole vocabulary
  std::string_view error;  // result
  TokenLogprobs logprobs;  // result
};

// Stores the model's own draw for job.sequence. `logprobs` and `top` are only read if
// params->logprobs is set.
void SetDrawn(SampleJob& job, int32_t token, kernels::DrawError error,
              const kernels::DrawnLogprobs& logprobs, std::span<const kernels::TopLogit> top);

// Chooses tokens. Tokens that the sequence's constraint forbids become -infinity, also in logprobs.
// Logprobs follow params->logprobs_mode. Then ProcessLogits is applied; a constraint that allows
// only end tokens overrules min_tokens. Temperature 0 chooses the largest logit (of equal ones, the
// lowest id). Otherwise DrawToken draws with the random number for (seed, number of output tokens
// so far). A result depends only on its own job. Thread safety: one call at a time. After
// construction, memory is allocated only for logprobs, new penalty counts, matchers, and a thread's
// first use of allowed_token_ids.
class Sampler {
 public:
  Sampler(int64_t vocab_size, int num_threads);
  // Total bytes of scratch memory over all threads.
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
  // Takes the largest logit without computing a mask, if the matcher accepts it.
  static SequenceMatcher::Answer TakesLargest(SampleJob& job);
  // Returns the logits that `job` draws from, with forbidden tokens masked. Leaves `mask` as the
  // matcher filled it. Empty if the constraint cannot be followed (job.error), or not in this step
  // (job.is_late).
  static std::span<const float> Constrain(SampleJob& job, Scratch& scratch);
  void SampleOne(SampleJob& job, Scratch& scratch) const;

  std::vector<std::unique_ptr<Scratch>> scratch_;  // indexed by thread
};

}  // namespace sluice
