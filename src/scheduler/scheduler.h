// Decides what the next step computes: a pure policy over sequences, a budget and the cache. It has
// no clock and no device; its owner sets the time.
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

// The order in which sequences are admitted.
enum class SchedulingPolicy {
  kFcfs,      // first come, first served
  kPriority,  // by priority, which improves with waiting time
  kFair,      // round-robin by client; within a client like kPriority
};

// Set by the engine's plan (engine_plan.h), which also defines the defaults.
struct SchedulerLimits {
  int block_size = 0;                  // in tokens
  int64_t max_num_batched_tokens = 0;  // >= max_num_seqs
  int64_t max_num_seqs = 0;
  // Maximum number of logits rows per step for prompt_logprobs, in addition to one row per sequence
  // that samples.
  int64_t max_prompt_logit_rows = 0;
  // Maximum number of draft tokens that a step verifies.
  int64_t max_proposed_tokens = 0;
  // Number of steps that are planned before the first of them is committed, and number of pipeline
  // stages, which compute one step each. Decodes are divided among `num_stages` steps, so that no
  // stage idles.
  int64_t steps_in_flight = 1;
  int64_t num_stages = 1;
  bool chunked_prefill = false;
  // Maximum number of tokens of one prompt per step; 0: no limit.
  int64_t long_prefill_token_threshold = 0;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  // How waiting time improves ranks; used only with priorities.
  Ageing ageing;
  // The attention span of each group of layers; group 0 keeps all positions.
  std::vector<AttentionSpan> groups = {AttentionSpan{}};
  // Maximum number of image rows that the tower computes in a step, because decodes wait for it. A
  // single image is always allowed.
  int64_t max_image_rows = 0;
  // If sequences keep states: number of tokens between two snapshots of a long prompt, a multiple
  // of the block size. 0: only the other snapshots that the policy (see Scheduler) lists.
  int64_t snapshot_interval = 0;
};

// The maximum number of blocks that a sequence of `tokens` tokens holds, in all groups together.
int64_t MostBlocks(const SchedulerLimits& limits, int64_t tokens);

// Under the fair policy: the number of tokens that a client may get per round (fair_shares.h). It
// is an eighth of a step, so that several clients have their turn in each step.
int64_t FairQuantum(const SchedulerLimits& limits);

// The tokens [first, first + num_tokens) of a sequence.
struct PlannedSlice {
  ScheduledSequence* sequence = nullptr;
  int64_t first = 0;
  int64_t num_tokens = 0;
  bool samples = false;   // whether it ends at the sequence's last token, so that a token is
                          // sampled
  bool all_rows = false;  // whether the logits of all its rows are needed
  // Number of draft tokens (`proposed`) at the end of the slice. The logits of their rows and of
  // the row before them are needed.
  int64_t num_proposed = 0;
  // How often the sequence had been preempted when the step was planned.
  int64_t num_preemptions = 0;
  StateId state = kNoState;  // the sequence's slot, if sequences keep states
};

struct StepPlan {
  std::vector<PlannedSlice> slices;           // decodes first
  std::vector<ScheduledSequence*> preempted;  // their blocks were taken; they wait again
  // The first `num_preempted_for_others` entries of `preempted` were preempted in favour of other
  // clients.
  int64_t num_preempted_for_others = 0;
  int64_t num_tokens = 0;
  int64_t num_logit_rows = 0;
  // For sequences that are admitted for the first time and read the cache: the number of prompt
  // tokens, and how many of them were found in the cache.
  int64_t prefix_queries = 0;
  int64_t prefix_hits = 0;
  // Number of tokens that were missing in the pool and were looked up in the tiers, and how many of
  // them the tiers returned. The latter also count in prefix_hits.
  int64_t tier_queries = 0;
  int64_t tier_hits = 0;
  // Whether a sequence was not admitted because blocks must still be moved for it (prefix_index.h).
  bool moves_blocks = false;
  // If sequences keep states: copies to make, in this order, and snapshots to take.
  std::vector<StateCopy> state_copies;
  std::vector<StateSnapshot> snapshots;
  // Images whose rows the step reads and the tower must compute: a sequence that has the image, and
  // its index.
  struct NewImage {
    ScheduledSequence* sequence = nullptr;
    size_t image = 0;  // index in sequence->images
  };
  std::vector<NewImage> new_images;
};

// The policy, in this order:
//
//   0. If the previous step had no slot or blocks for the client that has the turn, and this client
//      runs nothing, a victim is preempted: a sequence of the client with the most running
//      sequences, unless that client runs only one.
//   1. Each running sequence that decodes and is not held gets one token. If a block is missing, a
//      victim is preempted. The victim belongs to the client that received the most computation.
//      Among that client's sequences, the worst rank is chosen; among equals, a sequence that frees
//      blocks, then the one with the fewest tokens to recompute. The best-ranked sequence of the
//      client with the oldest running sequence is never chosen.
//   2. The rest of the budget goes to the shares in turn (FairShares), which are charged for the
//      computed tokens: first to a share's running prefills, in order of admission, then to its
//      waiting sequences in order of rank (priority improved by waiting, or order of arrival).
//      Nothing is admitted if (1) preempted a sequence. The first sequence that does not fit stops
//      admission for all shares, and its share has the turn again in the next step. Running
//      prefills continue, first those of the shares that got least. A sequence fits if blocks for
//      all its tokens are available, and one more per group for each running sequence. It takes the
//      blocks for its tokens immediately, so a prefill never runs out of blocks.
//   3. Draft tokens of decoding sequences get what remains of budget and blocks. They delay
//      nothing, and nothing is preempted for them.
//
// While steps are in flight, a sequence gets further tokens only up to its length(): the next chunk
// of a prompt, or a token that is known or counted in `num_drawn`.
//
// If sequences keep states (a StatePool), a prefix is found only up to a snapshot. Snapshots are
// taken at the last block border of a prompt from which another request can continue, at the point
// where a prompt diverges from an earlier or a follower's prompt, and every snapshot_interval
// tokens. At each block border after the prompt, a passing snapshot is taken, which replaces the
// previous passing one. A snapshot takes the least recently used slot. None is taken if a sequence
// that may be admitted might need the slot.
//
// Under the other policies, all sequences belong to one share. Decoded tokens and `owed_tokens` are
// charged only while some sequence waits for tokens: a client that is alone runs up no debt.
//
// Thread safety: used by the engine's thread only. Ownership: refers to pool, index and sequences;
// owns none of them. Allocates only in Add for a new client, and for a sequence that is first in
// the queue's order or admitted.
class Scheduler {
 public:
  // `images`: null if the model takes none. `index`: null without prefix caching. `states`: null if
  // sequences keep none; otherwise it has at least max_num_seqs slots, all groups attend to all
  // positions, and `index` refers to it. REQUIRES: every sequence fits into the pool when it is
  // alone.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, PrefixIndex* index,
            StatePool* states = nullptr, ImagePool* images = nullptr);

  // Sets the time: microseconds since a fixed moment, monotonic. Ageing is based on it; Add and
  // Plan use the time set last.
  void SetTime(int64_t now_us);

  void Add(ScheduledSequence& sequence);
  // Removes a sequence that has finished or was aborted, and releases its blocks immediately.
  void Remove(ScheduledSequence& sequence);
  // As above, for several sequences. Takes time linear in the number of removed and of running
  // sequences, times a logarithm.
  void Remove(std::span<ScheduledSequence* const> sequences);

  // Releases the blocks of all running sequences. They wait again and are computed from the first
  // token. Results of steps in flight are dropped.
  void PreemptAll();

  // Plans the next step, which is then in flight. The plan is valid until the next call, and does
  // not change when sequences are removed. Steps must be computed in the order of their plans,
  // because later plans may use blocks released meanwhile.
  const StepPlan& Plan();
  // Call for each slice of a computed step, once the KV of its tokens is in the blocks: in the
  // order of the plans, before appending sampled tokens and before any Remove. Do not call for a
  // failed step. Draft tokens do not count as computed.
  void Commit(const PlannedSlice& slice);
  // Commits all slices of the last plan.
  void Commit();
  // Call this instead of Commit for a slice whose token could not be chosen. The last token of the
  // slice then does not count as computed, and is computed again when the sequence decodes next. If
  // sequences keep states, the same applies to all tokens after the last snapshot.
  void CommitAllButLast(const PlannedSlice& slice);
  // Whether the slice's results are still needed: the sequence was neither removed nor preempted
  // since the plan. REQUIRES: the sequence exists.
  static bool IsWanted(const PlannedSlice& slice);
  // Call after Commit if the sampled token equals the sequence's next draft token, after appending
  // it. Its KV is already in the blocks.
  void AcceptProposed(ScheduledSequence& sequence);

  bool has_work() const { return !running_.empty() || num_waiting_ > 0; }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return num_waiting_; }
  std::span<ScheduledSequence* const> running() const { return running_; }
  // Maximum number of sequences that the next step decodes. If more can decode, the first ones in
  // the list are taken.
  int64_t MostDecodes() const;
  // Calls `visit` with each waiting sequence that does not wait for a leader.
  template <typename Visit>
  void ForEachWaiting(const Visit& visit) const {
    shares_.ForEach([&](const Share& share) { share.waiting.ForEach(visit); });
  }
  int64_t num_preemptions() const { return num_preemptions_; }
  // Number of shares and waiting sequences that were examined since construction to choose the next
  // sequence. This measures the work of choosing.
  int64_t num_visits() const { return shares_.num_visits() + num_candidates_; }

  // Checks that block references and states match those of all sequences, and calls
  // BlockPool::CheckInvariant().
  Status CheckInvariant() const;

 private:
  // The remaining budget of the step that is being planned.
  struct Budget {
    int64_t tokens = 0;
    int64_t prompt_logit_rows = 0;
    int64_t share_tokens = 0;  // tokens for the share whose turn it is
    int64_t image_rows = 0;    // rows to compute; does not limit the first image of a step
    bool makes_images = false;
  };

  int64_t num_groups() const { return static_cast<int64_t>(limits_.groups.size()); }
  // Index of the group's first block that a token at `position` attends to.
  int64_t FirstBlock(int64_t group, int64_t position) const {
    return limits_.groups[static_cast<size_t>(group)].FirstSeen(position) / limits_.block_size;
  }
  // The length in blocks that the group's table needs for a step that starts after `computed`
  // tokens and ends after `tokens` tokens.
  int64_t TableEnd(int64_t group, int64_t tokens, int64_t computed) const;
  // Number of blocks that the group's table lacks for a step that ends after `tokens` tokens.
  int64_t MissingOf(const ScheduledSequence& sequence, int64_t group, int64_t tokens) const;
  // Takes the missing blocks of all groups. Returns false and changes nothing if fewer than `kept`
  // blocks would remain available.
  [[nodiscard]] bool TakeMissing(ScheduledSequence& sequence, int64_t tokens, int64_t kept = 0);
  // Whether the share runs nothing because places or blocks are missing.
  bool LacksPlace(const Share& share) const;
  // Preempts a sequence in favour of the share that has the turn, if that share runs nothing.
  void GiveWay();
  void PlanDecodes(Budget& budget);
  // Lists the running prefills in their shares. Returns their number.
  int64_t ListPrefills();
  void PlanShares(Budget& budget);
  // Plans the next tokens of the share's first prefill. Removes the prefill from the list, and
  // returns true, if it gets none or needs no more.
  bool PlanPrefill(Share& share, Budget& budget);
  // Admits the share's next waiting sequence and plans its first tokens. Returns false and changes
  // nothing if the sequence must wait.
  bool Admit(Share& share, Budget& budget);
  bool TryAdmit(ScheduledSequence& sequence, Budget& budget);
  // Whether there are blocks for all tokens of a sequence whose prefix is `found`, and one more
  // block per group for each running sequence. `missing`: receives the number of blocks that the
  // sequence takes.
  bool HasRoomFor(const ScheduledSequence& sequence, const PrefixIndex::Found& found,
                  int64_t& missing);
  // Lets the index restore blocks for the sequence and make room for the rest, and updates `found`.
  // Returns false while blocks are still being moved, or if there is no room.
  bool MoveBlocks(ScheduledSequence& sequence, PrefixIndex::Found& found);
  // Releases the sequence's blocks and states.
  static void ReleaseAll(ScheduledSequence& sequence);
  // Number of next tokens of a prefill that fit into the budget; 0: none.
  int64_t Chunk(const ScheduledSequence& sequence, int64_t computed, const Budget& budget) const;
  // Like Chunk, but ignores images.
  int64_t TextChunk(const ScheduledSequence& sequence, int64_t computed,
                    const Budget& budget) const;
  void PlanProposed(Budget& budget);
  // Counts `num_tokens` more tokens as computed: inserts full blocks into the index, and releases
  // blocks that later tokens do not attend to.
  void Advance(ScheduledSequence& sequence, int64_t num_tokens);
  // Takes the states of the sequence's last snapshot from the index and continues after it.
  void GoBackToSnapshot(ScheduledSequence& sequence);
  // Number of free state slots that will not be needed for sequences still to be admitted.
  int64_t NumSpareStates() const;
  void PlanProposedStates();
  // After draft tokens were verified: uses the states after the last accepted token.
  void TakeBackStates();
  void KeepPassed(ScheduledSequence& sequence);
  void PlanSnapshots();
  void PlanSnapshot(size_t slice, int64_t tokens, bool is_passing);
  // Moves the snapshots of computed tokens to the index.
  void KeepSnapshots(ScheduledSequence& sequence);
  // Requests a snapshot at the end of a prefix that other sequences may share.
  static void WantSnapshot(ScheduledSequence& sequence, int64_t tokens);
  // Returns how many of `chunk` tokens of a prefill the step can compute. It stops before an image
  // for which it has no room, but computes all tokens of an image whose tokens attend to each
  // other.
  int64_t FitImages(const ScheduledSequence& sequence, int64_t computed, int64_t chunk,
                    const Budget& budget) const;
  // Marks the images in tokens [first, first + num_tokens) as used by the step.
  void UseImages(ScheduledSequence& sequence, int64_t first, int64_t num_tokens, Budget& budget);
  // Returns the tokens' keys in the prefix index.
  static std::span<const int32_t> KeysOf(const ScheduledSequence& sequence) {
    return sequence.keys.empty() ? sequence.tokens : sequence.keys;
  }
  // Adds tokens to the sequence's slice of this step, creating the slice if necessary.
  void PlanTokens(ScheduledSequence& sequence, int64_t num_tokens, Budget& budget);
  // Chooses which sequence of `share` to preempt, or if `share` is null, which sequence of all
  // shares.
  ScheduledSequence* PickVictim(const Share* share) const;
  void Preempt(ScheduledSequence& victim);
  void InsertWaiting(ScheduledSequence& sequence);
  // Whether the share's next waiting sequence should wait for a running prefill of the share, which
  // will compute at least half of the tokens that it needs. If so, makes it a follower.
  bool FollowPrefill(Share& share);
  void Follow(ScheduledSequence& sequence, ScheduledSequence& leader, int64_t tokens);
  // Inserts into the waiting queue the followers that awaited at most `tokens` tokens.
  void ReleaseFollowers(ScheduledSequence& leader, int64_t tokens);
  // Inserts into the waiting queue the followers with a better level, so that they do not wait
  // until a preempted leader is admitted again.
  void ReleaseMoreUrgent(ScheduledSequence& leader);
  template <typename Predicate>
  void ReleaseFollowersIf(ScheduledSequence& leader, const Predicate& released);
  // Finds the sequence's blocks in the index, except that of the last token.
  PrefixIndex::Found FindPrefix(ScheduledSequence& sequence);

  const SchedulerLimits limits_;
  std::vector<int64_t> most_blocks_;  // indexed by group, for a sequence of any length
  BlockPool& pool_;
  PrefixIndex* index_;
  StatePool* states_;
  ImagePool* images_;
  FairShares shares_;
  std::vector<ScheduledSequence*> running_;  // in order of admission
  // Whether the share whose turn it was in the last step lacked a slot or blocks.
  bool must_give_way_ = false;
  bool lacks_blocks_ = false;  // whether the last sequence tried lacked blocks
  int64_t num_waiting_ = 0;    // number of sequences in the shares' queues, and
                               // followers.
  int64_t num_followers_ = 0;  // number of followers among them
  StepPlan plan_;
  int64_t now_us_ = 0;
  uint64_t next_order_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_candidates_ = 0;
};

}  // namespace sluice
