// Proposes the tokens that a smaller model of the same vocabulary continues with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "engine/draft_plan.h"
#include "engine/drafter.h"
#include "models/kv_cache.h"
#include "models/model.h"
#include "sampler/sampler.h"
#include "speculation/speculation_config.h"
#include "tensor/buffer.h"

namespace sluice {

// The draft draws as the request does, with the same random number, but without the request's
// constraint: where both models agree on the probabilities they draw the same token. It has its own
// KV cache and its own index of prefixes, and knows nothing of the scheduler: a sequence is behind
// after its prompt, after a preemption, and while nothing was proposed for it; before tokens are
// proposed for it again the draft computes what it lacks, kMostCaughtUp tokens in a step of the
// engine. Where its cache is full, or a sequence is longer than it can be, nothing is proposed.
//
// Thread safety: one thread at a time. Everything but the tables of a sequence is allocated by
// Create. Ownership: owns cache and arrays; model and pool outlive it.
class DraftProposer final : public Drafter {
 public:
  // Tokens that are caught up before a step, at most.
  static constexpr int64_t kMostCaughtUp = 512;

  static Result<std::unique_ptr<DraftProposer>> Create(const DraftPlan& plan, Model& model,
                                                       ThreadPool& pool);
  DraftProposer(const DraftProposer&) = delete;
  DraftProposer& operator=(const DraftProposer&) = delete;
  ~DraftProposer() override;

  // What it takes besides model and cache.
  static int64_t Bytes(const DraftPlan& plan, int64_t vocab_size, int num_threads);

  void Propose(int64_t num_sequences, std::span<Job> jobs) override;
  void ResetPrefixCache() override {
    if (index_ != nullptr) index_->Reset();
  }
  const BlockPool& pool() const override { return blocks_; }

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
