// The engine's interface to a model that proposes tokens: a draft model (draft_proposer.h) or a
// drafting head (head_proposer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_pool.h"
#include "cache/block_tables.h"
#include "cache/prefix_index.h"
#include "models/model.h"
#include "sampler/sampler.h"
#include "speculation/draft_policy.h"

namespace sluice {

// A drafter's state of one sequence. Its destructor returns the blocks: destroy it before the
// drafter.
struct DraftSequence {
  // The sequence's tokens, followed by those that were proposed last.
  std::vector<int32_t> tokens;
  int64_t num_confirmed = 0;  // number of leading `tokens` that belong to the sequence
  // Number of leading tokens (for a head: rows, see head_proposer.h) whose keys and values are in
  // `blocks`.
  int64_t num_computed = 0;
  BlockTables blocks;
  PrefixCursor cursor;
  std::optional<SamplingParams> params;  // the request's, without logprobs
  DraftAcceptance acceptance;

  // For a head: the target's hidden rows that the head has not read yet, the position of the first
  // of them, the number of earlier positions that the head will never compute, and the salt of the
  // sequence's prefixes.
  std::vector<float> hidden;
  // Used on a device instead of `hidden`: the serial number of each kept row, counted over all
  // sequences.
  std::vector<int64_t> kept;
  int64_t hidden_first = 0;
  int64_t num_skipped = 0;
  std::string salt;
};

// Thread safety: one thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // A sequence for which to propose tokens.
  struct Job {
    TokenHistory history;
    const SequenceSampling* sampling = nullptr;
    std::string_view cache_salt;
    int64_t most = 0;  // maximum number of tokens to propose
    int64_t left = 0;  // maximum number of tokens that the sequence may still get
    DraftSequence* state = nullptr;
    std::vector<int32_t>* proposal = nullptr;  // receives the proposed tokens
  };
  // Proposes tokens for `jobs` before a step that decodes `num_sequences` sequences, including
  // those of `jobs`. REQUIRES: at most DraftPlan::max_sequences jobs; between calls, tokens of a
  // sequence are only appended or removed at the end.
  virtual void Propose(int64_t num_sequences, std::span<Job> jobs) = 0;

  // Hidden rows of a sequence that a step computed, for a drafting head.
  struct Hidden {
    std::span<const int32_t> tokens;  // the sequence, including tokens that the step sampled
    std::string_view cache_salt;
    const SequenceSampling* sampling = nullptr;
    int64_t left = 0;   // maximum number of tokens that the sequence may still get
    int64_t first = 0;  // position of the first row
    int64_t count = 0;
    const float* rows = nullptr;  // [count, HandedRows::Width]
    // On a device, instead of `rows`: the memory with the hidden rows of the step, and the index of
    // this sequence's first row in it.
    DeviceHidden step = {};
    int64_t step_row = 0;
    DraftSequence* state = nullptr;
  };
  virtual void Take(int64_t /*num_sequences*/, std::span<const Hidden> /*hidden*/) {}

  // Records how many proposed tokens a step accepted.
  void Learn(int num_proposed, int num_accepted, DraftSequence& state) {
    policy_.LearnAcceptance(num_proposed, num_accepted, state.acceptance);
  }
  // Records the time of a step without prompt tokens.
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
    policy_.LearnStep(num_sequences, num_proposed, seconds);
  }

  // Drops cached prefixes that no sequence uses.
  virtual void ResetPrefixCache() = 0;

  // For tests.
  virtual const BlockPool& pool() const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  explicit Drafter(const DraftPolicy& policy) : policy_(policy) {}

  static double SecondsSince(Clock::time_point start);
  // Returns a request's parameters for sampling by a drafter, without logprobs.
  static SamplingParams WithoutLogprobs(SamplingParams params);
  // Returns the job's sampling parameters without its constraint. REQUIRES: job.state has
  // parameters and outlives the result.
  static SequenceSampling SamplingOf(const Job& job);
  // Records the time of a pass that began at `start`. It had `num_rows` rows of `num_sequences`
  // sequences.
  void LearnPass(Clock::time_point start, size_t num_sequences, size_t num_rows);

  DraftPolicy policy_;
};

}  // namespace sluice
