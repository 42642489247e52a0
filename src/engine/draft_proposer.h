// Proposes draft tokens with a smaller model that has the same vocabulary.
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

// The draft samples as the request does, with the same random number, but without the request's
// constraint: if both models agree on the probabilities, they draw the same token. It has its own
// KV cache and its own prefix index, independent of the scheduler. After the prompt, after a
// preemption, and after steps without proposals, its cache lacks tokens of the sequence. Before it
// proposes again, it computes the missing tokens, at most kMostCaughtUp per step of the engine. If
// its cache is full or the sequence is too long for it, nothing is proposed.
//
// Thread safety: one thread at a time. Create allocates everything except the tables of sequences.
// Ownership: owns cache and arrays; model and pool outlive it.
class DraftProposer final : public Drafter {
 public:
  // Maximum number of missing tokens that are computed before a step.
  static constexpr int64_t kMostCaughtUp = 512;

  static Result<std::unique_ptr<DraftProposer>> Create(const DraftPlan& plan, Model& model,
                                                       ThreadPool& pool);
  DraftProposer(const DraftProposer&) = delete;
  DraftProposer& operator=(const DraftProposer&) = delete;
  ~DraftProposer() override;

  // Returns the bytes that it allocates in addition to model and cache.
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
    int64_t length = 0;  // number of tokens to propose; 0: only computes missing tokens
    int64_t end = 0;     // number of tokens whose keys and values exist after the next pass
  };

  DraftProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache,
                Buffer logits);

  // Updates job.state to the sequence's current tokens.
  void Follow(Job& job);
  // Takes blocks for the job's tokens and `length` more; lowers `length` if there are too few
  // blocks. Returns false if there are too few even for the job's tokens.
  bool TakeBlocks(Job& job, int64_t& length);
  // Computes the tokens up to `end` of each sequence in `active_` and samples the next token of
  // those that propose. Sequences with more tokens to propose stay in `active_`.
  void RunPass();

  const DraftPlan plan_;
  Model& model_;
  ThreadPool& threads_;
  KvCache cache_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;  // null: prefix caching is off
  Sampler sampler_;
  Buffer logits_;  // [max_sequences, vocab_size] F32
  std::vector<DraftPolicy::Candidate> candidates_;
  std::vector<Active> active_, drawing_;
  std::vector<SampleJob> samples_;
  std::vector<SequenceSampling> samplings_;
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  bool is_broken_ = false;  // whether a pass has failed
};

}  // namespace sluice
