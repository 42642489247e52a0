// One sequence as the scheduler sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set_hook.hpp>

#include "cache/block_tables.h"
#include "cache/prefix_index.h"

namespace sluice {

struct Share;

// Places of a sequence in the scheduler's lists. They are not undone by a destructor: what the
// scheduler still has when it ends may be destroyed in any order.
using FollowerHook =
    boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;
using SequenceHook =
    boost::intrusive::set_member_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// The owner sets the first part and calls Scheduler::Add; afterwards it may append to `tokens` (one
// sampled token at a time), set `proposed` and `num_drawn`, and clear `wants_all_rows`, everything
// else belongs to the scheduler. Ownership: the owner keeps it alive until Scheduler::Remove.
// Neither copied nor moved.
struct ScheduledSequence : FollowerHook {
  ScheduledSequence() = default;
  ScheduledSequence(const ScheduledSequence&) = delete;
  ScheduledSequence& operator=(const ScheduledSequence&) = delete;

  // Set by the owner.
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t num_prompt_tokens = 0;
  // Of prompt and output together; memory for them is allocated once, at admission.
  int64_t max_total_tokens = 0;
  int64_t priority = 0;  // smaller is sooner; counts unless the policy is first come first served
  uint64_t client = 0;   // whose share it belongs to under the fair policy
  std::string cache_salt;
  bool read_prefix_cache = true;
  // The logits of every prompt token are wanted (prompt_logprobs): small chunks, no cache reads.
  bool wants_all_rows = false;
  // What may follow `tokens`: the next step verifies as much of it as there is room for. It ends
  // before max_total_tokens.
  std::vector<int32_t> proposed;
  // Tokens behind `tokens` that steps in flight draw and that may be computed before they are known
  // here.
  int64_t num_drawn = 0;
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
  PrefixLookup lookup;        // while it waits
  uint64_t order = 0;         // of arrival
  int64_t rank = 0;           // before `order`: what the policy makes of the priority
  int64_t waiting_since = 0;  // step of Add
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  int64_t num_preemptions = 0;
  int64_t awaited = 0;  // tokens that `leader` has to have computed
  bool admitted_before = false;
  Share* share = nullptr;
  SequenceHook rank_hook, arrival_hook;  // in WaitingQueue
  // Those whose leader it is, and that wait for it; they are in no WaitingQueue.
  boost::intrusive::list<ScheduledSequence, boost::intrusive::base_hook<FollowerHook>,
                         boost::intrusive::constant_time_size<false>>
      followers;
  // Of the step being planned: its tokens and its slice so far, and the next prefill of its share.
  int64_t planned = 0;
  size_t slice = 0;
  ScheduledSequence* next_prefill = nullptr;

  // Tokens that may be computed.
  int64_t length() const { return static_cast<int64_t>(tokens.size()) + num_drawn; }
  bool is_in_flight() const { return num_begun > num_computed; }
};

}  // namespace sluice
