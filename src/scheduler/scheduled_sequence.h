// One sequence as the scheduler sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/block_tables.h"
#include "cache/prefix_index.h"

namespace sluice {

// The owner fills the first part, hands the sequence to Scheduler::Add and may then append to
// `tokens` (one sampled token at a time) and lower `wants_all_rows`; everything else belongs to the
// scheduler. Ownership: the owner keeps it alive until Scheduler::Remove. Neither copied nor moved.
struct ScheduledSequence {
  ScheduledSequence() = default;
  ScheduledSequence(const ScheduledSequence&) = delete;
  ScheduledSequence& operator=(const ScheduledSequence&) = delete;

  // Set by the owner.
  std::vector<int32_t> tokens;  // the prompt, then what was generated
  int64_t num_prompt_tokens = 0;
  int64_t max_total_tokens =
      0;                 // prompt and output together; room for them is made once, at admission
  int64_t priority = 0;  // smaller is sooner; counts under the priority policy
  std::string cache_salt;
  bool read_prefix_cache = true;
  bool wants_all_rows =
      false;  // logits of every prompt token (prompt_logprobs): small chunks, no cache reads
  // A sibling that was added before and will leave the same prompt in the prefix cache: this one
  // waits for it. Null: none.
  ScheduledSequence* leader = nullptr;

  // Set by the scheduler.
  enum class State { kNew, kWaiting, kRunning } state = State::kNew;
  int64_t num_computed = 0;  // leading tokens whose KV is in `blocks`, as far as needed
  BlockTables blocks;
  PrefixCursor cursor;
  uint64_t order = 0;         // of arrival
  int64_t waiting_since = 0;  // step of Add
  bool promoted = false;      // got its turn by ageing; from then on ahead of all priorities
  int64_t cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  int64_t num_preemptions = 0;
  bool admitted_before = false;
  bool leads = false;  // it is the leader of one that came later
};

}  // namespace sluice
