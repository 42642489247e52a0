// A sequence as the scheduler sees it.
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

// Orders sequences by priority and waiting time; smaller ranks come first. Waiting for
// Ageing::level_us improves a rank by one level.
struct Rank {
  int64_t level = 0;
  int64_t fraction_us = 0;  // time until `level` is reached, in [0, Ageing::level_us)

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// Hooks for the scheduler's lists. Their destructors do not unlink, so sequences that are still in
// the scheduler when it ends may be destroyed in any order.
using FollowerHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;
using SequenceHook =
    boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// The owner sets the first part and calls Scheduler::Add. After that it may append to `tokens` (one
// sampled token at a time), set `proposed`, `num_drawn`, `is_held` and `owed_tokens`, and clear
// `wants_all_rows`. Everything else belongs to the scheduler. Ownership: the owner keeps it alive
// until Scheduler::Remove. Not copyable or movable.
struct ScheduledSequence : FollowerHook {
  ScheduledSequence() = default;
  ScheduledSequence(const ScheduledSequence&) = delete;
  ScheduledSequence& operator=(const ScheduledSequence&) = delete;

  // --- Set by the owner.
  std::vector<int32_t> tokens;  // the prompt, then the generated tokens
  int64_t num_prompt_tokens = 0;
  // Maximum number of prompt and output tokens. Their memory is allocated once, at admission.
  int64_t max_total_tokens = 0;
  int64_t priority = 0;  // lower means sooner; ignored by kFcfs
  uint64_t client = 0;   // the share it belongs to under kFair
  std::string cache_salt;
  bool read_prefix_cache = true;
  // The images of the prompt, in ascending order and disjoint.
  struct Image {
    ImageId id = 0;
    int64_t begin = 0, end = 0;  // the tokens [begin, end) represent the image's rows
    int64_t rows = 0;
    bool is_whole = false;  // its tokens attend to each other, so they are computed in one step
  };
  std::vector<Image> images;
  // The keys of the tokens in the prefix index if there are images: a token that represents an
  // image row has the key -1 - (the image's id). The scheduler appends to it. Empty: the tokens are
  // the keys.
  std::vector<int32_t> keys;
  // Whether the logits of all prompt tokens are needed (prompt_logprobs). If so, the prompt is
  // computed in small chunks and without the prefix cache.
  bool wants_all_rows = false;
  // Draft tokens that follow `tokens`; the next step verifies as many as it has room for. They end
  // before max_total_tokens.
  std::vector<int32_t> proposed;
  // Number of tokens after `tokens` that steps in flight draw. These may be computed before they
  // are known here.
  int64_t num_drawn = 0;
  // The sequence waits for something outside the scheduler: it may run, but does not decode.
  bool is_held = false;
  // Other work for this sequence since the last plan, as the number of tokens that take the same
  // time. It is charged to the sequence's share.
  int64_t owed_tokens = 0;
  // An earlier sequence with the same prompt. This one waits until `leader` has computed the
  // prompt, to find it in the prefix cache. Null: none. The scheduler also sets it to a sequence
  // whose prompt is being computed and has a prefix in common with this one.
  ScheduledSequence* leader = nullptr;

  // --- Set by the scheduler.
  enum class State { kNew, kWaiting, kRunning } state = State::kNew;
  int64_t num_computed = 0;  // number of leading tokens whose KV is in `blocks`, except in dropped
                             // blocks
  int64_t num_begun = 0;     // value of num_computed once the steps in flight are done
  BlockTables blocks;
  PrefixCursor cursor;
  PrefixLookup lookup;  // used while waiting
  // If sequences keep states, while running: the sequence's slot, and the slots that steps in
  // flight fill with the states after the first `tokens` tokens.
  struct Snapshot {
    int64_t tokens = 0;
    bool is_passing = false;  // whether it is temporary (PrefixIndex::SetState)
    HeldState state;
  };
  HeldState held_state;
  std::vector<Snapshot> snapshots;
  // In a step that verifies draft tokens: slots for the states after each of its rows except the
  // last, and the number of tokens after the first row.
  std::vector<HeldState> proposed_states;
  int64_t proposed_from = 0;
  BlockId passing_block = kNoBlock;  // the block of this sequence's last passing snapshot
  // Lengths of prefixes, in whole blocks but counted in tokens, that are shared with other
  // sequences. Snapshots are taken there.
  std::vector<int64_t> shared_prefixes;
  uint64_t order = 0;  // position in the order of arrival
  int64_t level = 0;   // the priority, or 0 if the policy ignores it
  Rank rank;           // while running: rank at the last admission
  // While waiting: start of waiting in microseconds, shifted by the time that the sequence has run.
  int64_t waiting_since = 0;
  int64_t waited_us = 0;  // while running: waiting time until the last admission
  bool has_full_gain = false;
  int64_t cached_tokens = 0;  // number of prompt tokens found in the prefix cache at first
                              // admission
  int64_t num_preemptions = 0;
  int64_t awaited = 0;  // number of tokens that `leader` must have computed
  bool admitted_before = false;
  Share* share = nullptr;
  SequenceHook rank_hook, since_hook;  // links in WaitingQueue
  // Sequences that wait for this leader. They are in no WaitingQueue.
  boost::intrusive::list<ScheduledSequence, boost::intrusive::base_hook<FollowerHook>,
                         boost::intrusive::constant_time_size<false>>
      followers;
  // In the step being planned: number of its tokens, index of its slice, next prefill of its share.
  int64_t planned = 0;
  size_t slice = 0;
  ScheduledSequence* next_prefill = nullptr;

  // Number of tokens that may be computed now.
  int64_t length() const { return static_cast<int64_t>(tokens.size()) + num_drawn; }
  bool is_in_flight() const { return num_begun > num_computed; }
};

}  // namespace sluice
