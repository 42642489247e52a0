// One sequence as the scheduler sees it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set_hook.hpp>

#include "cache/block_tables.h"
#include "cache/image_pool.h"
#include "cache/prefix_index.h"
#include "cache/state_pool.h"

namespace sluice {

struct Share;

// What the policy makes of priority and waiting time; the smaller rank comes first. Waiting for
// Ageing::level_us improves it by one level.
struct Rank {
  int64_t level = 0;
  int64_t fraction_us = 0;  // of the next level: [0, Ageing::level_us)

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// Places of a sequence in the scheduler's lists. They are not undone by a destructor: what the
// scheduler still has when it ends may be destroyed in any order.
using FollowerHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;
using SequenceHook =
    boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// The owner sets the first part and calls Scheduler::Add; afterwards it may append to `tokens` (one
// sampled token at a time), set `proposed`, `num_drawn`, `is_held` and `owed_tokens`, and clear
// `wants_all_rows`, everything else belongs to the scheduler. Ownership: the owner keeps it alive
// until Scheduler::Remove. Neither copied nor moved.
struct ScheduledSequence : FollowerHook {
  ScheduledSequence() = default;
  ScheduledSequence(const ScheduledSequence&) = delete;
  ScheduledSequence& operator=(const ScheduledSequence&) = delete;

  // Set by the owner.
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t num_prompt_tokens = 0;
  // Prompt and output tokens together; their memory is allocated once, at admission.
  int64_t max_total_tokens = 0;
  int64_t priority = 0;  // smaller is sooner; counts unless the policy is first come first served
  uint64_t client = 0;   // whose share it belongs to under the fair policy
  std::string cache_salt;
  bool read_prefix_cache = true;
  // Images of the prompt, ascending and apart.
  struct Image {
    ImageId id = 0;
    int64_t begin = 0, end = 0;  // from its first token that stands for a row to after the last
    int64_t rows = 0;
    bool is_whole = false;  // its tokens see each other: they are computed in one step
  };
  std::vector<Image> images;
  // What the prefix index knows the tokens by, where there are images: a token that stands for a
  // row is -1 - its image's id. The scheduler appends to it. Empty: by themselves.
  std::vector<int32_t> keys;
  // The logits of every prompt token are wanted (prompt_logprobs): small chunks, no cache reads.
  bool wants_all_rows = false;
  // What may follow `tokens`: the next step verifies as much of it as there is room for. It ends
  // before max_total_tokens.
  std::vector<int32_t> proposed;
  // Tokens after `tokens` that steps in flight draw and that may be computed before they are known
  // here.
  int64_t num_drawn = 0;
  // It waits for something else than the scheduler: while it runs, it decodes nothing.
  bool is_held = false;
  // What else was done for it since the last plan, in tokens that took as long: its share is
  // charged with it.
  int64_t owed_tokens = 0;
  // A sequence with the same prompt that was added before: this one waits until it has computed the
  // prompt, to find it in the prefix cache. Null: none. The scheduler sets it, too, where a prompt
  // that is being computed begins alike.
  ScheduledSequence* leader = nullptr;

  // Set by the scheduler.
  enum class State { kNew, kWaiting, kRunning } state = State::kNew;
  int64_t num_computed = 0;  // leading tokens whose KV is in `blocks`, as far as needed
  int64_t num_begun = 0;     // likewise once the steps in flight are done
  BlockTables blocks;
  PrefixCursor cursor;
  PrefixLookup lookup;  // while it waits
  // Where sequences keep states, while it runs: its own slot, and those that steps in flight fill
  // with the states after its first `tokens` tokens.
  struct Snapshot {
    int64_t tokens = 0;
    bool is_passing = false;
    HeldState state;
  };
  HeldState held_state;
  std::vector<Snapshot> snapshots;
  // In a step that verifies proposed tokens: the states after each of its rows except the last, and
  // the tokens after the first row.
  std::vector<HeldState> proposed_states;
  int64_t proposed_from = 0;
  BlockId passing_block = kNoBlock;  // the last one that has a passing snapshot of this sequence
  // Whole blocks of tokens that it has in common with others, of which snapshots are wanted.
  std::vector<int64_t> shared_prefixes;
  uint64_t order = 0;         // of arrival
  int64_t level = 0;          // the priority, if the policy regards it
  Rank rank;                  // while it runs: that of its last admission
  int64_t waiting_since = 0;  // while it waits: microseconds, without the times in which it ran
  int64_t waited_us = 0;      // while it runs: until its last admission
  bool has_full_gain = false;
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  int64_t num_preemptions = 0;
  int64_t awaited = 0;  // tokens that `leader` has to have computed
  bool admitted_before = false;
  Share* share = nullptr;
  SequenceHook rank_hook, since_hook;  // in WaitingQueue
  // Those whose leader it is, and that wait for it; they are in no WaitingQueue.
  boost::intrusive::list<ScheduledSequence, boost::intrusive::base_hook<FollowerHook>,
                         boost::intrusive::constant_time_size<false>>
      followers;
  // In the step being planned: its tokens and its slice so far, and the next prefill of its share.
  int64_t planned = 0;
  size_t slice = 0;
  ScheduledSequence* next_prefill = nullptr;

  // Tokens that may be computed.
  int64_t length() const { return static_cast<int64_t>(tokens.size()) + num_drawn; }
  bool is_in_flight() const { return num_begun > num_computed; }
};

}  // namespace sluice
