// Decides what the next step computes: a pure policy over sequences, a budget and the cache. It has
// no clock and no device; its owner tells it the time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/state_slots.h"
#include "cache/block_counts.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "cache/state_pool.h"
#include "scheduler/fair_shares.h"
#include "scheduler/scheduled_sequence.h"

namespace sluice {

// In which order sequences are admitted.
enum class SchedulingPolicy {
  kFcfs,      // first come, first served
  kPriority,  // by priority, improved by waiting time
  kFair,      // shares by client, and likewise by priority within a share
};

// Decided by the engine's plan, which has the defaults.
struct SchedulerLimits {
  int block_size = 0;                  // tokens
  int64_t max_num_batched_tokens = 0;  // >= max_num_seqs
  int64_t max_num_seqs = 0;
  // Rows of logits of a step that may go to prompt_logprobs, beside the one of each sampling
  // sequence.
  int64_t max_prompt_logit_rows = 0;
  // Proposed tokens that a step verifies at most.
  int64_t max_proposed_tokens = 0;
  // Steps that are planned before the first of them is committed, and stages that compute one each:
  // decodes are divided among so many steps, so that no stage waits.
  int64_t steps_in_flight = 1;
  int64_t num_stages = 1;
  bool chunked_prefill = false;
  // Most tokens of one prompt in a step; 0: no such limit.
  int64_t long_prefill_token_threshold = 0;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // What waiting gains where priorities count.
  Ageing ageing;
  // What each group of layers attends to; group 0 keeps all positions.
  std::vector<AttentionSpan> groups = {AttentionSpan{}};
  // Rows of images that a step has made by the tower, but that it has those of one image in any
  // case: so much do decodes wait for towers.
  int64_t max_image_rows = 0;
  // Where sequences keep states: tokens between two snapshots of a long prompt, a multiple of the
  // block size; 0: none but those that the policy below names.
  int64_t snapshot_interval = 0;
};

// Blocks that a sequence of `tokens` tokens holds at most, in all groups together.
int64_t MostBlocks(const SchedulerLimits& limits, int64_t tokens);

// Under the fair policy: the tokens that a client may be given in a round (fair_shares.h). An
// eighth of a step, so that several have their turn in each.
int64_t FairQuantum(const SchedulerLimits& limits);

// Tokens [first, first + num_tokens) of one sequence.
struct PlannedSlice {
  ScheduledSequence* sequence = nullptr;
  int64_t first = 0;
  int64_t num_tokens = 0;
  bool samples = false;   // ends at the sequence's last token: a token is sampled
  bool all_rows = false;  // the logits of all its rows are wanted
  // The last tokens are the first of the sequence's `proposed`: the logits of their rows and of the
  // one before them are wanted.
  int64_t num_proposed = 0;
  int64_t num_preemptions = 0;  // of the sequence when this was planned
  StateId state = kNoState;     // the sequence's slot, where sequences keep states
};

struct StepPlan {
  std::vector<PlannedSlice> slices;           // decodes first
  std::vector<ScheduledSequence*> preempted;  // lost their blocks; they wait again
  int64_t num_preempted_for_others = 0;       // the first of those, in favour of other clients
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  // Prompt tokens of sequences admitted for the first time that read the cache; and of those,
  // found.
  int64_t prefix_queries = 0;
  int64_t prefix_hits = 0;
  // Where sequences keep states: in order; by slice and rows.
  std::vector<StateCopy> state_copies;
  std::vector<StateSnapshot> snapshots;
  // Images whose rows the step reads and that are to be made: the ids, and a sequence that has it.
  struct NewImage {
    ScheduledSequence* sequence = nullptr;
    size_t image = 0;  // of its
  };
  std::vector<NewImage> new_images;
};

// The policy, in this order:
//   0. If it is the turn of a client of which nothing runs, and there was no place or no block for
//      it in the step before, a sequence of the client with the most running ones is preempted,
//      unless it is the only one of its client.
//   1. Running sequences that decode and are not held get their token. Where a block is missing,
//   the
//      cheapest victim is preempted (of the client that has been given most; the worst rank first;
//      then the fewest tokens to compute again), but never the first in rank of the client that the
//      oldest running sequence belongs to.
//   2. What is left of the budget goes to the shares in turn (FairShares), by the tokens that are
//      computed for each: to its running prefills, in order of admission, then to its waiting
//      sequences, which are admitted unless one was preempted in this step: in order of
//      rank: by priority less the gain of waiting, or first come first served. The first that does
//      not fit stops admission, of all shares, and its share has the turn again in the next step;
//      running prefills go on, those of the shares first that have been given least. A sequence
//      fits when blocks for all its tokens are available and one more a group for each running
//      sequence; it takes the former at once, so that a prefill never runs out of blocks.
//   3. Proposed tokens of sequences that decode get what is left of budget and blocks: they delay
//     nothing, and nothing is preempted for them.
// A sequence gets what it has tokens for beyond those of the steps in flight: the next chunk of a
// prompt, but no token behind one that is not known.
// Where sequences keep states (a StatePool), a prefix is found as far as a snapshot. They are taken
// at the last block border of a prompt that another request can continue from, where a prompt
// parts from one that was computed before or from a follower's, every snapshot_interval tokens, and
// at each block border after the prompt, where the new one replaces the one before. A snapshot
// takes the slot of the longest unused one; none is taken where a sequence to be admitted might
// want the slot.
// Under the other policies all sequences are of one share. Decoded tokens, and what is owed, are
// charged while anybody waits for tokens: who is alone runs up no debt.
// Thread safety: used by the engine's thread only. Ownership: refers to pool, index and sequences;
// owns none of them. Allocates in Add, for a new client, and on behalf of a sequence that is first
// in order or admitted.
class Scheduler {
 public:
  // `images` is null where the model takes none.
  // `index` may be null: no prefix caching. `states` is null where sequences keep none; else it has
  // max_num_seqs slots at least, all groups see everything, and `index` refers to it. REQUIRES:
  // every sequence fits the pool when alone.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, PrefixIndex* index,
            StatePool* states = nullptr, ImagePool* images = nullptr);

  // Microseconds since a fixed moment, never less than before. Ageing counts from here; Add and
  // Plan refer to the time that was set last.
  void SetTime(int64_t now_us);

  void Add(ScheduledSequence& sequence);
  // Finished or aborted: its blocks are released now.
  void Remove(ScheduledSequence& sequence);
  // Likewise for any number, in time linear in those and in the running ones, but for a logarithm.
  void Remove(std::span<ScheduledSequence* const> sequences);

  // Takes the blocks of all running sequences away: they wait again, and are computed from their
  // first token on. What the steps in flight compute of them is not wanted any more.
  void PreemptAll();

  // Plans the next step, which is in flight from then on. The plan is valid until the next call; it
  // does not change when sequences are removed. Steps are computed in the order of their plans:
  // blocks that are released meanwhile may be planned with again.
  const StepPlan& Plan();
  // To be called when a step was computed and its tokens' KV is in the blocks, for each of its
  // slices: in the order of the plans, before sampled tokens are appended and before any Remove.
  // Not called for a step that failed. Proposed tokens do not count as computed.
  void Commit(const PlannedSlice& slice);
  // Commits the step that was planned last.
  void Commit();
  // Instead of Commit, for a slice that samples and whose token could not be chosen: its last token
  // counts as not computed, and is computed again when the sequence decodes next. Where sequences
  // keep states, so are the tokens after the last snapshot.
  void CommitAllButLast(const PlannedSlice& slice);
  // Whether what a step computes of the slice is still wanted: the sequence has neither been
  // removed nor preempted since. REQUIRES: it still exists.
  static bool IsWanted(const PlannedSlice& slice);
  // To be called after Commit when a sequence's next proposed token was sampled indeed, and was
  // appended: its KV is in the blocks.
  void AcceptProposed(ScheduledSequence& sequence);

  bool has_work() const { return !running_.empty() || num_waiting_ > 0; }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return num_waiting_; }
  std::span<ScheduledSequence* const> running() const { return running_; }
  // The most running sequences that the next step may decode: the first ones, in the order of the
  // list.
  int64_t MostDecodes() const;
  // Calls `visit` with the waiting sequences that may be admitted, which do not wait for a leader.
  template <typename Visit>
  void ForEachWaiting(const Visit& visit) const {
    shares_.ForEach([&](const Share& share) { share.waiting.ForEach(visit); });
  }
  int64_t num_preemptions() const { return num_preemptions_; }
  // Shares and waiting sequences that were looked at since construction to choose what comes next:
  // a measure of that work.
  int64_t num_visits() const { return shares_.num_visits() + num_candidates_; }

  // Checks that references to blocks and the states of all sequences agree, and
  // BlockPool::CheckInvariant().
  Status CheckInvariant() const;

 private:
  // What is still free in the step being planned.
  struct Budget {
    int64_t tokens = 0;
    int64_t prompt_logit_rows = 0;
    int64_t share_tokens = 0;  // for the share that is served
    int64_t image_rows = 0;    // to be made; those of one image if none is made yet
    bool makes_images = false;
  };

  int64_t num_groups() const { return static_cast<int64_t>(limits_.groups.size()); }
  // The first block of the group that a token at `position` sees.
  int64_t FirstBlock(int64_t group, int64_t position) const {
    return limits_.groups[static_cast<size_t>(group)].FirstSeen(position) / limits_.block_size;
  }
  // Where the group's table ends before a step of a sequence of which `computed` tokens are done.
  int64_t TableEnd(int64_t group, int64_t tokens, int64_t computed) const;
  // Blocks that the group's table lacks for a step that ends after `tokens` tokens.
  int64_t MissingOf(const ScheduledSequence& sequence, int64_t group, int64_t tokens) const;
  // Takes those of all groups. False, and nothing changed, if fewer than they and `kept` are
  // available.
  [[nodiscard]] bool TakeMissing(ScheduledSequence& sequence, int64_t tokens, int64_t kept = 0);
  // Whether the share runs nothing for want of a place or of blocks.
  bool LacksPlace(const Share& share) const;
  // Preempts a sequence in favour of the share that has its turn and runs nothing.
  void GiveWay();
  void PlanDecodes(Budget& budget);
  // Lists the running prefills in their shares. Returns how many there are.
  int64_t ListPrefills();
  void PlanShares(Budget& budget);
  // The first prefill of the share gets its next tokens; without any it leaves the list. Returns
  // whether it has left.
  bool PlanPrefill(Share& share, Budget& budget);
  // The next sequence of the share that waits is admitted, and gets its first tokens. False, and
  // nothing changed, if it has to wait.
  bool Admit(Share& share, Budget& budget);
  bool TryAdmit(ScheduledSequence& sequence, Budget& budget);
  // What it holds of blocks and states is released.
  static void ReleaseAll(ScheduledSequence& sequence);
  // The next tokens of a prefill under the budget; 0: none.
  int64_t Chunk(const ScheduledSequence& sequence, int64_t computed, const Budget& budget) const;
  // The same whatever images there are.
  int64_t TextChunk(const ScheduledSequence& sequence, int64_t computed,
                    const Budget& budget) const;
  void PlanProposed(Budget& budget);
  // `num_tokens` more are computed: full blocks go into the index, those that are no longer seen
  // are released.
  void Advance(ScheduledSequence& sequence, int64_t num_tokens);
  // The sequence goes on from the last snapshot of its tokens, which it takes from the index.
  void GoBackToSnapshot(ScheduledSequence& sequence);
  // Slots for states that nobody who may be admitted wants.
  int64_t NumSpareStates() const;
  void PlanProposedStates();
  // Where not all proposed tokens were accepted, the states are those after the last one that was.
  void TakeBackStates();
  void KeepPassed(ScheduledSequence& sequence);
  void PlanSnapshots();
  void PlanSnapshot(size_t slice, int64_t tokens, bool is_passing);
  // Those that are computed go to the index.
  void KeepSnapshots(ScheduledSequence& sequence);
  // A prefix that others may share.
  static void WantSnapshot(ScheduledSequence& sequence, int64_t tokens);
  // How many of `chunk` tokens of a prefill the step can compute: up to an image for which it has
  // no room, and all of one whose tokens see each other.
  int64_t FitImages(const ScheduledSequence& sequence, int64_t computed, int64_t chunk,
                    const Budget& budget) const;
  // The images of tokens [first, first + num_tokens) are used by the step.
  void UseImages(ScheduledSequence& sequence, int64_t first, int64_t num_tokens, Budget& budget);
  // The tokens as the prefix index knows them.
  static std::span<const int32_t> KeysOf(const ScheduledSequence& sequence) {
    return sequence.keys.empty() ? sequence.tokens : sequence.keys;
  }
  // Adds tokens to the sequence's slice of this step, which begins with the first of them.
  void PlanTokens(ScheduledSequence& sequence, int64_t num_tokens, Budget& budget);
  // Chooses from `share`, or from all if that is null.
  ScheduledSequence* PickVictim(const Share* share) const;
  void Preempt(ScheduledSequence& victim);
  void InsertWaiting(ScheduledSequence& sequence);
  // Whether the next sequence of the share that waits had better go on waiting: for a running one
  // of the share that is about to compute half of what it needs, or more. Then it follows that one.
  bool FollowPrefill(Share& share);
  void Follow(ScheduledSequence& sequence, ScheduledSequence& leader, int64_t tokens);
  // Those that waited for so many of its tokens may be admitted.
  void ReleaseFollowers(ScheduledSequence& leader, int64_t tokens);
  // Likewise those of a better level: they do not wait until a preempted leader has its turn again.
  void ReleaseMoreUrgent(ScheduledSequence& leader);
  template <typename Predicate>
  void ReleaseFollowersIf(ScheduledSequence& leader, const Predicate& released);
  // Blocks of `sequence` that are in the index, but for the last token's.
  PrefixIndex::Found FindPrefix(ScheduledSequence& sequence);

  const SchedulerLimits limits_;
  std::vector<int64_t> most_blocks_;  // by group, of a sequence of any length
  BlockPool& pool_;
  PrefixIndex* index_;
  StatePool* states_;
  ImagePool* images_;
  FairShares shares_;
  std::vector<ScheduledSequence*> running_;  // in order of admission
  bool must_give_way_ = false;               // the share that had its turn last lacks a place
  bool lacks_blocks_ = false;                // so did the last that was tried
  int64_t num_waiting_ = 0;                  // in the queues of the shares, and followers
  int64_t num_followers_ = 0;                // of those, the latter
  StepPlan plan_;
  int64_t now_us_ = 0;
  uint64_t next_order_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_candidates_ = 0;
};

}  // namespace sluice
