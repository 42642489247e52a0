// Proposes the tokens that a drafting head (models/drafter_spec.h) continues with.
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

// Row p of a sequence is of its token p + 1 and of the target's hidden row of token p. A step hands
// the hidden rows that it computed (Take). Few of them are kept until tokens are proposed: the pass
// that proposes the first token computes them; those of a prompt are computed at once, if that
// pays. A further token takes the head's own hidden row; what such rows leave in the cache is
// overwritten, once the target's are there.
//
// The head draws as the request does, as a draft model (draft_proposer.h). It has its own KV cache
// and its own index of prefixes, of the tokens from the second one on: a block holds what follows
// from the tokens up to and including its own. Where hidden rows are missing (of a prefix that the
// target found and the head did not, or of tokens that came while nothing was proposed), the head
// goes on without them: it sees fewer tokens, at the positions that they have.
//
// Thread safety: one thread at a time. Ownership: owns cache and arrays; model and pool outlive it.
class HeadProposer final : public Drafter {
 public:
  // Rows in a pass, at least.
  static constexpr int64_t kMostRows = 512;
  // Hidden rows that are kept of a sequence from step to step.
  static constexpr int64_t kMostKept = kMaxSpeculativeTokens + 8;

  static Result<std::unique_ptr<HeadProposer>> Create(const DraftPlan& plan, Model& model,
                                                      ThreadPool& pool);
  HeadProposer(const HeadProposer&) = delete;
  HeadProposer& operator=(const HeadProposer&) = delete;
  ~HeadProposer() override;

  // What it takes besides model and cache.
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
    int64_t length = 0;  // to be proposed
  };
  // F32 numbers.
  struct Arrays {
    Buffer logits;  // [max_sequences, num_outputs]
    Buffer wide;    // [max_sequences, vocab_size]: those of tokens without a logit are -infinity
    Buffer hidden;  // [max_rows, target_width]
    Buffer handed;  // [max_sequences, hidden_size]
  };

  HeadProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache, Arrays arrays);

  int64_t NumHidden(const DraftSequence& state) const {
    return std::ssize(state.hidden) / target_width_;
  }
  // The position of the row that it computes next.
  static int64_t NextOf(const DraftSequence& state) {
    return state.num_computed + state.num_skipped;
  }
  // For a sequence that is new to the head: finds its longest prefix.
  void Begin(std::span<const int32_t> tokens, std::string_view cache_salt,
             const SequenceSampling& sampling, DraftSequence& state);
  // Appends rows [begin, count) to those that are kept.
  void Keep(const Hidden& hidden, int64_t begin, DraftSequence& state) const;
  // The kept rows begin with the one that is computed next.
  void SkipMissing(DraftSequence& state) const;
  // Takes blocks for so many further rows.
  bool TakeBlocks(DraftSequence& state, int64_t rows);
  // Computes the rows of a prompt but for the last one, and keeps that. False if it did not.
  bool CatchUp(const Hidden& hidden);
  // Adds rows of a sequence to the step: those that are kept, or of the last token proposed.
  void AddRows(std::span<const int32_t> tokens, int64_t first, int64_t count, int64_t context,
               const float* rows, int64_t width, DraftSequence& state);
  void ClearStep();
  // Computes the step. `wants`: the last row of each sequence.
  void Forward(bool takes_target, bool wants);
  void Insert(std::span<const int32_t> tokens, DraftSequence& state);
  // Draws the next token of each of `active_`, and keeps those that propose more.
  void Draw();
  void Break(std::span<Job> jobs);

  const DraftPlan plan_;
  Model& model_;
  ThreadPool& threads_;
  const std::vector<int32_t> target_ids_;  // by logit; empty: the same
  const int64_t vocab_size_, num_outputs_, target_width_, hidden_size_;
  KvCache cache_;
  BlockPool blocks_;
  std::unique_ptr<PrefixIndex> index_;  // null: no prefixes are kept
  Sampler sampler_;
  Arrays arrays_;
  std::vector<DraftPolicy::Candidate> candidates_;
  std::vector<Active> active_;
  std::vector<SampleJob> samples_;
  std::vector<SequenceSampling> samplings_;
  std::vector<int32_t> tokens_, positions_, logit_rows_;
  std::vector<kernels::AttentionSlice> slices_;
  bool is_broken_ = false;  // a pass failed
};

}  // namespace sluice
