// Decides what the next step computes: a pure policy over sequences, a budget and the cache. It has
// no clock and no device; time is the number of steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/block_counts.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "scheduler/scheduled_sequence.h"

namespace sluice {

// Decided by the engine's plan, which has the defaults.
struct SchedulerLimits {
  int block_size = 0;                  // tokens
  int64_t max_num_batched_tokens = 0;  // >= max_num_seqs
  int64_t max_num_seqs = 0;
  // Rows of logits of a step that may go to prompt_logprobs, beside the one of each sampling
  // sequence.
  int64_t max_prompt_logit_rows = 0;
  bool chunked_prefill = false;
  // Most tokens of one prompt in a step; 0: no such limit.
  int64_t long_prefill_token_threshold = 0;
  bool priority_policy = false;
  // Under the priority policy the sequence that has waited longest is admitted next whatever its
  // priority, once it has waited for so many steps since it was added or since the last such turn.
  int64_t ageing_steps = 64;
  // What each group of layers attends to; group 0 keeps all positions.
  std::vector<AttentionSpan> groups = {AttentionSpan{}};
};

// Blocks that a sequence of `tokens` tokens holds at most, in all groups together.
int64_t MostBlocks(const SchedulerLimits& limits, int64_t tokens);

// Tokens [first, first + num_tokens) of one sequence.
struct PlannedSlice {
  ScheduledSequence* sequence = nullptr;
  int64_t first = 0;
  int64_t num_tokens = 0;
  bool samples = false;   // ends at the sequence's last token: a token is sampled
  bool all_rows = false;  // the logits of all its rows are wanted
};

struct StepPlan {
  std::vector<PlannedSlice> slices;           // decodes first
  std::vector<ScheduledSequence*> preempted;  // lost their blocks; they wait again
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  // Prompt tokens of sequences admitted for the first time that read the cache; and of those,
  // found.
  int64_t prefix_queries = 0;
  int64_t prefix_hits = 0;
};

// The policy, in this order:
//   1. Running sequences that decode get their token. Where a block is missing, the cheapest victim
//      is preempted (the fewest tokens to compute again; the worst priority first under that
//      policy), but never the sequence that comes first of all: so some sequence always finishes.
//   2. Running prefills continue, in order of admission, with what is left of the budget.
//   3. Waiting sequences are admitted, unless one was preempted: first come first served or by
//      priority with ageing. The first that does not fit stops admission. A sequence fits when
//      blocks for all its tokens are available and one more a group for each running sequence; it
//      takes the former at once, so that a prefill never runs out of blocks.
// Thread safety: used by the engine's thread only. Ownership: refers to pool, index and sequences;
// owns none of them. Allocates in Add, when more sequences wait than ever before, and on behalf of
// a sequence that is first in order or admitted.
class Scheduler {
 public:
  // `index` may be null: no prefix caching. REQUIRES: every sequence fits the pool when alone.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, PrefixIndex* index);

  void Add(ScheduledSequence& sequence);
  // Finished or aborted: its blocks are released now.
  void Remove(ScheduledSequence& sequence);
  // Likewise for any number, in time linear in those and in the sequences that it has.
  void Remove(std::span<ScheduledSequence* const> sequences);

  // Plans the next step. The plan is valid until the next call; it does not change when sequences
  // are removed.
  const StepPlan& Plan();
  // To be called when the planned step was computed and its tokens' KV is in the blocks: before
  // sampled tokens are appended and before any Remove. Not called for a step that failed.
  void Commit();

  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  std::span<ScheduledSequence* const> running() const { return running_; }
  std::span<ScheduledSequence* const> waiting() const { return waiting_; }
  int64_t num_preemptions() const { return num_preemptions_; }

  // Checks that references to blocks and the states of all sequences agree, and
  // BlockPool::CheckInvariant().
  Status CheckInvariant() const;

 private:
  // What is still free in the step being planned.
  struct Budget {
    int64_t tokens = 0;
    int64_t prompt_logit_rows = 0;
  };

  int64_t num_groups() const { return static_cast<int64_t>(limits_.groups.size()); }
  // The first block of the group that a token at `position` sees.
  int64_t FirstBlock(int64_t group, int64_t position) const {
    return limits_.groups[static_cast<size_t>(group)].FirstSeen(position) / limits_.block_size;
  }
  // Where the group's table ends before a step of a sequence of which `computed` tokens are done.
  int64_t TableEnd(int64_t group, int64_t tokens, int64_t computed) const;
  // Blocks that the sequence has to take before the step, in all groups.
  int64_t Missing(const ScheduledSequence& sequence) const;
  // Takes them. False, and nothing changed, if fewer are available.
  [[nodiscard]] bool TakeMissing(ScheduledSequence& sequence);
  int64_t Rank(const ScheduledSequence& sequence) const;
  bool GoesBefore(const ScheduledSequence& a, const ScheduledSequence& b) const;
  void PlanDecodes(Budget& budget);
  void PlanPrefills(Budget& budget);
  void Admit(Budget& budget);
  // The sequence to admit next: by ageing (`out_of_order` is set unless it is the first anyway), or
  // the first in order that does not wait for a sibling; null if there is none.
  ScheduledSequence* NextCandidate(bool& out_of_order);
  // False, and nothing changed, if it has to wait.
  bool TryAdmit(ScheduledSequence& sequence, Budget& budget);
  // The next tokens of a prefill under the budget; 0: none.
  int64_t Chunk(const ScheduledSequence& sequence, int64_t computed, const Budget& budget) const;
  void PlanSlice(ScheduledSequence& sequence, int64_t num_tokens, Budget& budget);
  ScheduledSequence* PickVictim() const;
  void Preempt(ScheduledSequence& victim);
  void InsertWaiting(ScheduledSequence& sequence);

  const SchedulerLimits limits_;
  std::vector<int64_t> most_blocks_;  // by group, of a sequence of any length
  BlockPool& pool_;
  PrefixIndex* index_;
  std::vector<ScheduledSequence*> waiting_;  // sorted by GoesBefore
  std::vector<ScheduledSequence*> running_;  // in order of admission
  StepPlan plan_;
  int64_t step_ = 0;
  int64_t last_ageing_turn_ = 0;
  uint64_t next_order_ = 0;
  int64_t num_preemptions_ = 0;
};

}  // namespace sluice
