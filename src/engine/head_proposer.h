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
// After each step the engine passes the hidden rows to Take(). A few of these rows are kept until
// tokens are proposed; the pass that proposes the first token computes the kept rows. Rows of a
// prompt are computed immediately if that saves time. Each further proposed token uses the head's
// own hidden row instead; its keys and values are overwritten once the target's row is known.
//
// The head samples as the request does, like a draft model (draft_proposer.h). It has its own KV
// cache and its own prefix index over the tokens from the second on: a block depends on all tokens
// up to and including its own. Hidden rows are missing for a prefix that only the target found in
// its cache, and for tokens that were decoded while nothing was proposed. The head skips them: it
// attends to fewer tokens, at their true positions.
//
// A DFlash drafter drafts in two passes. The first computes the keys and values of the kept rows:
// row p from the target's hidden row of token p only. The second computes a block after these rows
// and returns the logits of all its tokens at once. Later rows overwrite the block's keys and
// values.
//
// On a device, hidden rows stay in its memory: Model::kept_rows() is used as a ring buffer of kept
// rows. A row that was overwritten counts as missing. The logits are copied to the host, which
// samples.
//
// Thread safety: one thread at a time. Ownership: owns cache and arrays; model, pool and the memory
// of a device's cache outlive it.
class HeadProposer final : public Drafter {
 public:
  // The maximum number of rows in a pass is at least this.
  static constexpr int64_t kMostRows = 512;
  // Maximum number of hidden rows of a sequence that are kept between steps.
  static constexpr int64_t kMostKept = kMaxSpeculativeTokens + 8;

  // `device_cache`: on a device, memory of plan.kv_bytes for the keys and values; else null.
  static Result<std::unique_ptr<HeadProposer>> Create(const DraftPlan& plan, Model& model,
                                                      ThreadPool& pool,
                                                      void* device_cache = nullptr);
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
    int64_t row = 0;     // for block drafting: logits row of the block's first token
  };
  // Where the hidden rows of a step come from.
  enum class Source {
    kKept,   // kept rows of the sequences
    kGiven,  // rows of the target's last step
    kOwn,    // rows of the head's last step
  };
  // All arrays are F32. On a device, `hidden` and `handed` are empty.
  struct Arrays {
    Buffer logits;  // [max_logit_rows, num_outputs]
    Buffer wide;    // [max_sequences, vocab_size]: -infinity for tokens without a logit
    Buffer hidden;  // [max_rows, target_width]
    Buffer handed;  // [max_sequences, hidden_size]
  };

  HeadProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache, Arrays arrays);

  // Number of kept rows.
  int64_t NumHidden(const DraftSequence& state) const {
    return plan_.on_device ? std::ssize(state.kept) : std::ssize(state.hidden) / target_width_;
  }
  // Drops the first `count` kept rows.
  void DropFirst(int64_t count, DraftSequence& state) const;
  void DropAll(DraftSequence& state) const { DropFirst(NumHidden(state), state); }
  // Drops kept rows that were overwritten in the ring buffer.
  void DropLost(DraftSequence& state) const;
  // Returns the position of the next row to compute.
  static int64_t NextOf(const DraftSequence& state) {
    return state.num_computed + state.num_skipped;
  }
  // Finds the longest cached prefix of a sequence that is new to the head.
  void Begin(std::span<const int32_t> tokens, std::string_view cache_salt,
             const SequenceSampling& sampling, DraftSequence& state);
  // Appends rows [begin, count) of `hidden` to the kept rows.
  void Keep(const Hidden& hidden, int64_t begin, DraftSequence& state);
  void KeepOnDevice(const Hidden& hidden, int64_t begin, DraftSequence& state);
  // Drops kept rows that are already computed. Counts rows that are missing before the first kept
  // row as skipped.
  void SkipMissing(DraftSequence& state) const;
  // Takes blocks for `rows` more rows. Returns false if there are too few.
  bool TakeBlocks(DraftSequence& state, int64_t rows);
  // Processes the hidden rows of one sequence.
  void TakeRows(int64_t num_sequences, const Hidden& one);
  // Computes all rows of a prompt except the last, which it keeps. If there are too few blocks for
  // the rows kept before, returns false and keeps no row of `hidden`.
  bool CatchUp(const Hidden& hidden);
  // Adds rows of a sequence to the step, at positions from `first` on. `context`: number of rows
  // before them in the cache. The caller adds the same number of hidden rows.
  void AddRows(std::span<const int32_t> tokens, int64_t first, int64_t count, int64_t context,
               DraftSequence& state);
  // These functions add hidden rows to the step: all kept rows of the sequence, rows of the
  // target's last step, or the head's own row for the i-th sequence of its last step.
  void AddKept(const DraftSequence& state);
  void AddGiven(const Hidden& hidden, int64_t begin, int64_t count);
  void AddOwn(int64_t i);
  void AddHidden(const float* rows, int64_t count, int64_t width);
  void ClearStep();
  // Computes the step. `given`: for Source::kGiven on a device. `wants`: whether to compute logits
  // of the rows in `logit_rows_`.
  void Forward(Source source, const DeviceHidden& given, bool wants);
  void Insert(std::span<const int32_t> tokens, DraftSequence& state);
  // Samples the next token of each sequence in `active_`; sequences with more tokens to propose
  // stay in `active_`.
  void Draw();
  // Computes one block for each sequence in `active_`.
  void RunBlocks();
  // Samples all tokens of the sequences in `active_` from the logits of their blocks.
  void DrawBlocks();
  // Adds the sampled token of a sequence to its text and its proposal. Returns false if no token
  // was sampled.
  static bool Append(const Active& active, const SampleJob& sample);
  // Lets `sample` read a row of the logits.
  void ReadLogits(int64_t row, const Active& active, SampleJob& sample);
  void Break(std::span<Job> jobs);

  const DraftPlan plan_;
  Model& model_;
  ThreadPool& threads_;
  // Token id of each logit; empty: logit i belongs to token i.
  const std::vector<int32_t> target_ids_;
  const int64_t vocab_size_, num_outputs_, target_width_, hidden_size_;
  const int64_t block_size_;  // block size of a DFlash drafter, else 0
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
  std::vector<kernels::SeenSpan> spans_;  // spans that the blocks attend to, by slice
  int64_t num_hidden_ = 0;                // number of hidden rows in the step
  std::vector<int32_t> hidden_rows_;      // on a device: StepInput::hidden_rows
  int64_t num_kept_ = 0;                  // on a device: total number of rows kept so far
  bool is_broken_ = false;                // whether a pass has failed
};

}  // namespace sluice
