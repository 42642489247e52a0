// Proposes draft tokens with a drafting head (models/drafter_spec.h).
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

// Row p of a sequence is computed from its token p + 1 and the target's hidden row of token p.
// After each step the engine passes the hidden rows to Take(). A few of them are kept until tokens
// are proposed: the pass that proposes the first token computes them. Rows of a prompt are computed
// immediately if that saves time. Each further proposed token uses the head's own hidden row
// instead; its keys and values are overwritten once the target's row is known.
//
// The head samples as the request does, like a draft model (draft_proposer.h). It has its own KV
// cache and its own prefix index over the tokens from the second on: a block depends on all tokens
// up to and including its own. Hidden rows are missing for a prefix that only the target found in
// its cache, and for tokens that came while nothing was proposed. The head skips them: it attends
// to fewer tokens, at their true positions.
//
// Thread safety: one thread at a time. Ownership: owns cache and arrays; model and pool outlive it.
class HeadProposer final : public Drafter {
 public:
  // The maximum number of rows in a pass is at least this.
  static constexpr int64_t kMostRows = 512;
  // Maximum number of hidden rows of a sequence that are kept between steps.
  static constexpr int64_t kMostKept = kMaxSpeculativeTokens + 8;

  static Result<std::unique_ptr<HeadProposer>> Create(const DraftPlan& plan, Model& model,
                                                      ThreadPool& pool);
  HeadProposer(const HeadProposer&) = delete;
  HeadProposer& operator=(const HeadProposer&) = delete;
  ~HeadProposer() override;

  // Returns the bytes that it allocates in addition to model and cache.
  static int64_t Bytes(const DraftPlan& plan, int num_threads);

  void Propose(int64_t num_sequences, std::span<Job> jobs) override;
  void Take(int64_t num_sequences, std::span<const Hidden> hidden) override;
  void ResetPrefixCache() override {
    if (index_ != nullptr) index_->Reset();
  }
  const BlockPool& pool() const override { return blocks_; }

 private:
  struct Active {
    Job* job = nullptr;
    SequenceSampling* sampling = nullptr;
    int64_t length = 0;  // number of tokens to propose
  };
  // All are F32.
  struct Arrays {
    Buffer logits;  // [max_sequences, num_outputs]
    Buffer wide;    // [max_sequences, vocab_size]: -infinity for tokens without a logit
    Buffer hidden;  // [max_rows, target_width]
    Buffer handed;  // [max_sequences, hidden_size]
  };

  HeadProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache, Arrays arrays);

  int64_t NumHidden(const DraftSequence& state) const {
    return std::ssize(state.hidden) / target_width_;
  }
  // Returns the position of the next row to compute.
  static int64_t NextOf(const DraftSequence& state) {
    return state.num_computed + state.num_skipped;
  }
  // Finds the longest cached prefix of a sequence that is new to the head.
  void Begin(std::span<const int32_t> tokens, std::string_view cache_salt,
             const SequenceSampling& sampling, DraftSequence& state);
  // Appends rows [begin, count) of `hidden` to the kept rows.
  void Keep(const Hidden& hidden, int64_t begin, DraftSequence& state) const;
  // Drops kept rows that are already computed, and counts missing rows before the first kept one as
  // skipped.
  void SkipMissing(DraftSequence& state) const;
  // Takes blocks for `rows` more rows. Returns false if there are too few.
  bool TakeBlocks(DraftSequence& state, int64_t rows);
  // Computes all rows of a prompt except the last, which it keeps. Returns false, and keeps nothing
  // of `hidden`, if there are too few blocks for the rows kept before.
  bool CatchUp(const Hidden& hidden);
  // Adds rows of a sequence to the step: either its kept rows, or the row of the last proposed
  // token.
  void AddRows(std::span<const int32_t> tokens, int64_t first, int64_t count, int64_t context,
               const float* rows, int64_t width, DraftSequence& state);
  void ClearStep();
  // Computes the step. `wants`: whether to compute logits of the last row of each sequence.
  void Forward(bool takes_target, bool wants);
  void Insert(std::span<const int32_t> tokens, DraftSequence& state);
  // Samples the next token of each sequence in `active_`; those with more tokens to propose stay in
  // it.
  void Draw();
  void Break(std::span<Job> jobs);

  const DraftPlan plan_;
  Model& model_;
  ThreadPool& threads_;
  // Token id of each logit; empty: logit i belongs to token i.
  const std::vector<int32_t> target_ids_;
  const int64_t vocab_size_, num_outputs_, target_width_, hidden_size_;
  KvCache cache_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;  // null: prefix caching is off
  Sampler sampler_;
  Arrays arrays_;
  std::vector<DraftPolicy::Candidate> candidates_;
  std::vector<Active> active_;
  std::vector<SampleJob> samples_;
  std::vector<SequenceSampling> samplings_;
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  bool is_broken_ = false;  // whether a pass has failed
};

}  // namespace sluice
