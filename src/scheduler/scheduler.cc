#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {

int64_t MostBlocks(const SchedulerLimits& limits, int64_t tokens) {
  int64_t blocks = 0;
  for (const AttentionSpan& group : limits.groups)
    blocks += MostBlocks(group, tokens, limits.max_num_batched_tokens, limits.block_size);
  return blocks;
}

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool, PrefixIndex* index)
    : limits_(limits), pool_(pool), index_(index) {
  CHECK_GT(limits.block_size, 0);
  CHECK_GT(limits.max_num_seqs, 0);
  CHECK_GE(limits.max_num_batched_tokens, limits.max_num_seqs);
  CHECK_GT(limits.max_prompt_logit_rows, 0);
  CHECK(!limits.groups.empty() && limits.groups[0].sees_all());
  constexpr int64_t kAnyLength = int64_t{1} << 40;
  for (const AttentionSpan& group : limits.groups) {
    most_blocks_.push_back(
        MostBlocks(group, kAnyLength, limits.max_num_batched_tokens, limits.block_size));
  }
  const size_t places = static_cast<size_t>(limits.max_num_seqs);
  running_.reserve(places);
  plan_.slices.reserve(places);
  plan_.preempted.reserve(places);
}

int64_t Scheduler::Rank(const ScheduledSequence& sequence) const {
  if (!limits_.priority_policy) return 0;
  return sequence.promoted ? std::numeric_limits<int64_t>::min() : sequence.priority;
}

bool Scheduler::GoesBefore(const ScheduledSequence& a, const ScheduledSequence& b) const {
  const int64_t rank_a = Rank(a), rank_b = Rank(b);
  return rank_a != rank_b ? rank_a < rank_b : a.order < b.order;
}

void Scheduler::InsertWaiting(ScheduledSequence& sequence) {
  sequence.state = ScheduledSequence::State::kWaiting;
  const auto place =
      std::upper_bound(waiting_.begin(), waiting_.end(), &sequence,
                       [this](const auto* a, const auto* b) { return GoesBefore(*a, *b); });
  waiting_.insert(place, &sequence);
}

void Scheduler::Add(ScheduledSequence& sequence) {
  CHECK(sequence.state == ScheduledSequence::State::kNew);
  CHECK(!sequence.tokens.empty());
  CHECK_LE(MostBlocks(limits_, sequence.max_total_tokens), pool_.num_blocks());
  if (sequence.leader != nullptr) {
    CHECK(sequence.leader->state != ScheduledSequence::State::kNew, "the leader is not here");
    sequence.leader->leads = true;
  }
  sequence.blocks = BlockTables(num_groups());
  sequence.order = next_order_++;
  sequence.waiting_since = step_;
  InsertWaiting(sequence);
}

void Scheduler::Remove(ScheduledSequence& sequence) {
  ScheduledSequence* const only = &sequence;
  Remove({&only, 1});
}

void Scheduler::Remove(std::span<ScheduledSequence* const> sequences) {
  using State = ScheduledSequence::State;
  bool any_ran = false, any_waited = false, any_led = false;
  for (ScheduledSequence* sequence : sequences) {
    CHECK(sequence->state != State::kNew, "the sequence is not here");
    (sequence->state == State::kRunning ? any_ran : any_waited) = true;
    any_led = any_led || sequence->leads;
    sequence->blocks.Clear();
    sequence->state = State::kNew;
  }
  const auto take_out = [&](std::vector<ScheduledSequence*>& list) {
    if (sequences.size() == 1) {
      list.erase(std::find(list.begin(), list.end(), sequences.front()));
    } else {
      std::erase_if(list, [](const auto* sequence) { return sequence->state == State::kNew; });
    }
  };
  if (any_ran) take_out(running_);
  if (any_waited) take_out(waiting_);
  if (!any_led) return;
  for (ScheduledSequence* other : waiting_) {
    if (other->leader != nullptr && other->leader->state == State::kNew) other->leader = nullptr;
  }
}

const StepPlan& Scheduler::Plan() {
  ++step_;
  plan_.slices.clear();
  plan_.preempted.clear();
  plan_.num_tokens = plan_.num_logit_rows = plan_.prefix_queries = plan_.prefix_hits = 0;
  Budget budget{limits_.max_num_batched_tokens, limits_.max_prompt_logit_rows};
  PlanDecodes(budget);
  PlanPrefills(budget);
  if (plan_.preempted.empty()) Admit(budget);
  return plan_;
}

int64_t Scheduler::TableEnd(int64_t group, int64_t tokens, int64_t computed) const {
  return std::min(BlocksForTokens(tokens, limits_.block_size),
                  FirstBlock(group, computed) + most_blocks_[static_cast<size_t>(group)]);
}

int64_t Scheduler::Missing(const ScheduledSequence& sequence) const {
  int64_t missing = 0;
  for (int64_t group = 0; group < num_groups(); ++group) {
    missing +=
        TableEnd(group, static_cast<int64_t>(sequence.tokens.size()), sequence.num_computed) -
        sequence.blocks[group].size();
  }
  return missing;
}

bool Scheduler::TakeMissing(ScheduledSequence& sequence) {
  if (Missing(sequence) > pool_.num_available()) return false;
  for (int64_t group = 0; group < num_groups(); ++group) {
    BlockList& table = sequence.blocks[group];
    CHECK(pool_.Take(
        TableEnd(group, static_cast<int64_t>(sequence.tokens.size()), sequence.num_computed) -
            table.size(),
        table));
  }
  return true;
}

void Scheduler::PlanDecodes(Budget& budget) {
  // The blocks of all are taken before slices are planned, so that no victim has a slice.
  for (size_t i = 0; i < running_.size();) {
    if (TakeMissing(*running_[i])) {
      ++i;
      continue;
    }
    Preempt(*PickVictim());
    i = 0;  // the list has changed
  }
  for (ScheduledSequence* sequence : running_) {
    if (sequence->num_computed == static_cast<int64_t>(sequence->tokens.size()) - 1)
      PlanSlice(*sequence, 1, budget);
  }
}

void Scheduler::PlanPrefills(Budget& budget) {
  for (ScheduledSequence* sequence : running_) {
    if (sequence->num_computed >= static_cast<int64_t>(sequence->tokens.size()) - 1) continue;
    const int64_t chunk = Chunk(*sequence, sequence->num_computed, budget);
    if (chunk > 0) PlanSlice(*sequence, chunk, budget);
  }
}

int64_t Scheduler::Chunk(const ScheduledSequence& sequence, int64_t computed,
                         const Budget& budget) const {
  const int64_t remaining = static_cast<int64_t>(sequence.tokens.size()) - computed;
  // The row that samples is not counted among the rows of prompt logits.
  if (sequence.wants_all_rows)
    return std::min({remaining, budget.tokens, budget.prompt_logit_rows});
  if (!limits_.chunked_prefill) return remaining <= budget.tokens ? remaining : 0;
  int64_t chunk = std::min(remaining, budget.tokens);
  if (limits_.long_prefill_token_threshold > 0)
    chunk = std::min(chunk, limits_.long_prefill_token_threshold);
  return chunk;
}

void Scheduler::PlanSlice(ScheduledSequence& sequence, int64_t num_tokens, Budget& budget) {
  const bool samples =
      sequence.num_computed + num_tokens == static_cast<int64_t>(sequence.tokens.size());
  const bool all_rows = sequence.wants_all_rows;
  plan_.slices.push_back({&sequence, sequence.num_computed, num_tokens, samples, all_rows});
  plan_.num_tokens += num_tokens;
  plan_.num_logit_rows += all_rows ? num_tokens : samples;
  budget.tokens -= num_tokens;
  if (all_rows) budget.prompt_logit_rows -= num_tokens;
}

ScheduledSequence* Scheduler::PickVictim() const {
  const ScheduledSequence* first =
      *std::min_element(running_.begin(), running_.end(),
                        [this](const auto* a, const auto* b) { return GoesBefore(*a, *b); });
  struct Choice {
    ScheduledSequence* sequence = nullptr;
    bool useless = true;
    int64_t rank = 0;
    int64_t cost = 0;
  } best;
  for (ScheduledSequence* sequence : running_) {
    if (sequence == first) continue;
    const auto count_shared = [&](const BlockList& table) {
      int64_t shared = 0;
      for (const BlockId block : table.ids().subspan(static_cast<size_t>(table.num_absent())))
        shared += pool_.references(block) > 1;
      return shared;
    };
    int64_t shared = 0;
    for (int64_t group = 0; group < num_groups(); ++group)
      shared += count_shared(sequence->blocks[group]);
    const int64_t to_find = count_shared(sequence->blocks[0]) * limits_.block_size;
    const Choice choice{sequence, shared == sequence->blocks.num_held(), Rank(*sequence),
                        std::max<int64_t>(0, sequence->num_computed - to_find)};
    const auto better = [&] {
      if (best.sequence == nullptr) return true;
      if (choice.useless != best.useless) return !choice.useless;
      if (choice.rank != best.rank) return choice.rank > best.rank;
      if (choice.cost != best.cost) return choice.cost < best.cost;
      return choice.sequence->order > best.sequence->order;
    };
    if (better()) best = choice;
  }
  CHECK(best.sequence != nullptr, "one sequence alone does not fit {} blocks", pool_.num_blocks());
  return best.sequence;
}

void Scheduler::Preempt(ScheduledSequence& victim) {
  running_.erase(std::find(running_.begin(), running_.end(), &victim));
  victim.blocks.Clear();
  victim.num_computed = 0;
  victim.cursor = {};
  ++victim.num_preemptions;
  ++num_preemptions_;
  plan_.preempted.push_back(&victim);
  InsertWaiting(victim);
}

ScheduledSequence* Scheduler::NextCandidate(bool& out_of_order) {
  out_of_order = false;
  ScheduledSequence* first = nullptr;
  ScheduledSequence* oldest = nullptr;
  for (ScheduledSequence* sequence : waiting_) {
    const ScheduledSequence* leader = sequence->leader;
    if (leader != nullptr && leader->num_computed < leader->num_prompt_tokens) continue;
    sequence->leader = nullptr;
    if (first == nullptr) first = sequence;
    if (!limits_.priority_policy) return first;
    if (oldest == nullptr || sequence->order < oldest->order) oldest = sequence;
  }
  if (oldest != first &&
      step_ - std::max(oldest->waiting_since, last_ageing_turn_) >= limits_.ageing_steps) {
    out_of_order = true;
    return oldest;
  }
  return first;
}

void Scheduler::Admit(Budget& budget) {
  while (budget.tokens > 0 && num_running() < limits_.max_num_seqs) {
    bool out_of_order = false;
    ScheduledSequence* candidate = NextCandidate(out_of_order);
    if (candidate == nullptr || !TryAdmit(*candidate, budget)) return;
    if (out_of_order) {
      candidate->promoted = true;
      last_ageing_turn_ = step_;
    }
  }
}

bool Scheduler::TryAdmit(ScheduledSequence& sequence, Budget& budget) {
  const int64_t num_tokens = static_cast<int64_t>(sequence.tokens.size());
  const bool reads = index_ != nullptr && sequence.read_prefix_cache && !sequence.wants_all_rows;
  // The last token is always computed: its logits are needed.
  const int64_t most_blocks = (num_tokens - 1) / limits_.block_size;
  PrefixIndex::Found found;
  if (reads) {
    found = index_->Count(sequence.tokens, most_blocks, sequence.cache_salt, sequence.lookup);
  }
  const int64_t computed = found.blocks * limits_.block_size;
  int64_t missing = 0;
  for (int64_t group = 0; group < num_groups(); ++group)
    missing += TableEnd(group, num_tokens, computed) - found.blocks;
  if (missing + num_running() * num_groups() > pool_.num_available() - found.unheld) return false;
  const int64_t chunk = Chunk(sequence, computed, budget);
  if (chunk <= 0) return false;

  if (index_ != nullptr) sequence.cursor = index_->Start(sequence.cache_salt);
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_total_tokens));
  sequence.blocks.Reserve(BlocksForTokens(sequence.max_total_tokens, limits_.block_size));
  if (reads) {
    CHECK_EQ(index_->Match(sequence.tokens, most_blocks, sequence.cache_salt, sequence.lookup,
                           sequence.cursor, sequence.blocks),
             found.blocks);
    sequence.lookup = {};
  }
  sequence.num_computed = computed;
  CHECK(TakeMissing(sequence));
  if (!sequence.admitted_before) {
    sequence.admitted_before = true;
    sequence.cached_tokens = computed;
    if (reads) {
      plan_.prefix_queries += num_tokens;
      plan_.prefix_hits += computed;
    }
  }
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &sequence));
  sequence.state = ScheduledSequence::State::kRunning;
  running_.push_back(&sequence);
  PlanSlice(sequence, chunk, budget);
  return true;
}

void Scheduler::Commit() {
  const size_t length = static_cast<size_t>(limits_.block_size);
  for (const PlannedSlice& slice : plan_.slices) {
    ScheduledSequence& sequence = *slice.sequence;
    sequence.num_computed += slice.num_tokens;
    const std::span<const int32_t> tokens = sequence.tokens;
    while (index_ != nullptr &&
           (sequence.cursor.num_blocks + 1) * limits_.block_size <= sequence.num_computed) {
      index_->Insert(
          tokens.subspan(static_cast<size_t>(sequence.cursor.num_blocks) * length, length),
          sequence.cache_salt, sequence.cursor, sequence.blocks);
    }
    for (int64_t group = 0; group < num_groups(); ++group)
      sequence.blocks[group].DropFront(FirstBlock(group, sequence.num_computed));
  }
}

Status Scheduler::CheckInvariant() const {
  RETURN_IF_ERROR(pool_.CheckInvariant());
  int64_t references = 0, listed = 0;
  for (int64_t block = 0; block < pool_.num_blocks(); ++block) {
    references += pool_.references(static_cast<BlockId>(block));
  }
  for (const ScheduledSequence* sequence : running_) {
    listed += sequence->blocks.num_held();
    for (int64_t group = 0; group < num_groups(); ++group) {
      const BlockList& table = sequence->blocks[group];
      if (sequence->num_computed > table.size() * limits_.block_size ||
          table.num_absent() != FirstBlock(group, sequence->num_computed)) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("{} of {} blocks of a sequence are absent with {} tokens computed",
                                table.num_absent(), table.size(), sequence->num_computed));
      }
      if (table.num_held() > most_blocks_[static_cast<size_t>(group)])
        return Fail(ErrorCode::kInternal, "a sequence holds more blocks than it can use");
    }
  }
  for (const ScheduledSequence* sequence : waiting_) {
    if (sequence->blocks.num_held() > 0)
      return Fail(ErrorCode::kInternal, "a waiting sequence holds blocks");
  }
  if (references != listed) {
    return Fail(
        ErrorCode::kInternal,
        fmt::format("{} references to blocks, {} in running sequences", references, listed));
  }
  if (index_ == nullptr) return {};
  if (index_->num_indexed() < pool_.num_cached())
    return Fail(ErrorCode::kInternal, "a cached block is not in the index");
  return index_->CheckInvariant();
}

}  // namespace sluice
