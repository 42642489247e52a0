// What the engine asks of a model that proposes tokens: a draft model (draft_proposer.h) or a
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
#include "sampler/sampler.h"
#include "speculation/draft_policy.h"

namespace sluice {

// What a drafter has of one sequence. Destroying it gives its blocks back: before the drafter's
// end.
struct DraftSequence {
  // The sequence's tokens, and those that were proposed last.
  std::vector<int32_t> tokens;
  int64_t num_confirmed = 0;  // of those, the sequence's
  // Leading tokens whose keys and values are in `blocks`; of a head, rows (head_proposer.h).
  int64_t num_computed = 0;
  BlockTables blocks;
  PrefixCursor cursor;
  std::optional<SamplingParams> params;  // the request's, without logprobs
  DraftAcceptance acceptance;

  // For a head: the target's hidden rows that it has not computed yet, from position `hidden_first`
  // on; the positions before, which it never will; and the salt of its prefixes.
  std::vector<float> hidden;
  int64_t hidden_first = 0;
  int64_t num_skipped = 0;
  std::string salt;
};

// Thread safety: one thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;

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
  // DraftPlan::max_sequences jobs; a sequence's tokens change only at their end.
  virtual void Propose(int64_t num_sequences, std::span<Job> jobs) = 0;

  // Hidden rows of a sequence that a step has computed, for drafters that continue them.
  struct Hidden {
    std::span<const int32_t> tokens;  // the sequence, with what the step has sampled
    std::string_view cache_salt;
    const SequenceSampling* sampling = nullptr;
    int64_t left = 0;   // tokens that the sequence may still get
    int64_t first = 0;  // position
    int64_t count = 0;
    const float* rows = nullptr;  // [count, its width]
    DraftSequence* state = nullptr;
  };
  virtual void Take(int64_t /*num_sequences*/, std::span<const Hidden> /*hidden*/) {}

  // What a step found of a proposal.
  void Learn(int num_proposed, int num_accepted, DraftSequence& state) {
    policy_.LearnAcceptance(num_proposed, num_accepted, state.acceptance);
  }
  // What the step took, which did nothing but decode.
  void LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
    policy_.LearnStep(num_sequences, num_proposed, seconds);
  }

  // Forgets the prefixes that no sequence holds.
  virtual void ResetPrefixCache() = 0;

  // For tests.
  virtual const BlockPool& pool() const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  explicit Drafter(const DraftPolicy& policy) : policy_(policy) {}

  static double SecondsSince(Clock::time_point start);
  // A request's parameters as a drafter draws with them.
  static SamplingParams WithoutLogprobs(SamplingParams params);
  // What the job's next tokens are drawn with: as the request draws, without its constraint.
  // REQUIRES: its state has parameters, and outlives the result.
  static SequenceSampling SamplingOf(const Job& job);
  // A pass that began at `start` has computed so many rows.
  void LearnPass(Clock::time_point start, size_t num_rows);

  DraftPolicy policy_;
};

}  // namespace sluice
