// Proposes the tokens that a smaller model of the same vocabulary continues with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/block_tables.h"
#include "cache/prefix_index.h"
#include "engine/draft_plan.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/sampler.h"
#include "speculation/draft_policy.h"
#include "speculation/speculation_config.h"
#include "tensor/buffer.h"

namespace sluice {

// What the draft has of one sequence. Destroying it gives its blocks back: before the proposer's
// end.
struct DraftSequence {
  // The sequence's tokens, and those that were proposed last.
  std::vector<int32_t> tokens;
  int64_t num_confirmed = 0;  // of those, the sequence's
  int64_t num_computed = 0;   // leading tokens whose keys and values are in `blocks`
  BlockTables blocks;
  PrefixCursor cursor;
  std::optional<SamplingParams> params;  // the request's, without logprobs
  DraftAcceptance acceptance;
};

// The draft draws as the request does, with the same random number, but without the request's
// constraint: where both models agree on the probabilities they draw the same token. It has its own
// KV cache and its own index of prefixes, and knows nothing of the scheduler: a sequence is behind
// after its prompt, after a preemption, and while nothing was proposed for it; before tokens are
// proposed for it again the draft computes what it lacks, kMostCaughtUp tokens in a step of the
// engine. Where its cache is full, or a sequence is longer than it can be, nothing is proposed.
//
// Thread safety: one thread at a time. Everything but the tables of a sequence is allocated by
// Create. Ownership: owns cache and arrays; model and pool outlive it.
class DraftProposer {
 public:
  // Tokens that are caught up before a step, at most.
  static constexpr int64_t kMostCaughtUp = 512;

  static Result<std::unique_ptr<DraftProposer>> Create(const DraftPlan& plan, Model& model,
                                                       ThreadPool& pool);
  DraftProposer(const DraftProposer&) = delete;
  DraftProposer& operator=(const DraftProposer&) = delete;
  ~DraftProposer();

  // What it takes besides model and cache.
  static int64_t Bytes(const DraftPlan& plan, int64_t vocab_size, int num_threads);

  // A sequence that decodes.
  struct Job {
    TokenHistory history;
    const SequenceSampling* sampling = nullptr;
    std::string_view cache_salt;
    int64_t most = 0;  // tokens that may be proposed
    int64_t left = 0;  // that the sequence may still get
    DraftSequence* state = nullptr;
    std::vector<int32_t>* proposal = nullptr;  // out
  };
  // Before a step that decodes `num_sequences`, the jobs' among them. REQUIRES: no more than
  // plan.max_sequences jobs; a sequence's tokens change only at their end.
  void Propose(int64_t num_sequences, std::span<Job> jobs);
  // What a step found of a proposal.
  void Learn(int num_proposed, int num_accepted, DraftSequence& state) {
    policy_.LearnAcceptance(num_proposed, num_accepted, state.acceptance);
  }
  // What the step took, which did nothing but decode.
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
    policy_.LearnStep(num_sequences, num_proposed, seconds);
  }

  // Forgets the prefixes that no sequence holds.
  void ResetPrefixCache() {
    if (index_ != nullptr) index_->Reset();
  }

  // For tests.
  const BlockPool& pool() const { return blocks_; }

 private:
  struct Active {
    Job* job = nullptr;
    SequenceSampling* sampling = nullptr;
    int64_t length = 0;  // to be proposed; 0: it is only caught up
    int64_t end = 0;     // tokens that are computed in the next pass
  };

  DraftProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache,
                Buffer logits);

  // Makes the state that of the sequence as it is now.
  void Follow(Job& job);
  // Takes blocks for the job's tokens and `length` more, or for as many as there are. False if
  // there are too few for its tokens.
  bool TakeBlocks(Job& job, int64_t& length);
  // Computes the tokens up to `end` of each of `active_`, draws the next of those that propose, and
  // keeps those that propose more.
  void RunPass();

  const DraftPlan plan_;
  Model& model_;
  ThreadPool& threads_;
  KvCache cache_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;  // null: no prefixes are kept
  DraftPolicy policy_;
  Sampler sampler_;
  Buffer logits_;  // [max_sequences, vocab_size] F32
  std::vector<DraftPolicy::Candidate> candidates_;
  std::vector<Active> active_, drawing_;
  std::vector<SampleJob> samples_;
  std::vector<SequenceSampling> samplings_;
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  bool is_broken_ = false;  // a pass failed
};

}  // namespace sluice
