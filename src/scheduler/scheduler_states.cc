// The states that sequences keep besides blocks: when snapshots are taken and kept, and to which
// snapshot a preempted sequence returns.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace sluice {

void Scheduler::WantSnapshot(ScheduledSequence& sequence, int64_t tokens) {
  // Maximum number of shared prefixes. Each costs a copy of the states; a prompt rarely shares
  // more.
  constexpr size_t kMost = 16;
  std::vector<int64_t>& wanted = sequence.shared_prefixes;
  if (wanted.size() < kMost && std::ranges::find(wanted, tokens) == wanted.end())
    wanted.push_back(tokens);
}

void Scheduler::PlanSnapshots() {
  if (states_ == nullptr || index_ == nullptr) return;
  for (size_t i = 0; i < plan_.slices.size(); ++i) {
    const PlannedSlice& slice = plan_.slices[i];
    const ScheduledSequence& sequence = *slice.sequence;
    const int64_t block = limits_.block_size;
    const int64_t end = slice.first + slice.num_tokens - slice.num_proposed;
    // The last token of a prompt is always computed.
    const int64_t prompt = (sequence.num_prompt_tokens - 1) / block * block;
    for (int64_t tokens = (slice.first / block + 1) * block; tokens <= end; tokens += block) {
      const bool is_wanted =
          tokens == prompt ||
          (limits_.snapshot_interval > 0 && tokens % limits_.snapshot_interval == 0) ||
          std::ranges::find(sequence.shared_prefixes, tokens) != sequence.shared_prefixes.end();
      const bool is_passing = !is_wanted && tokens > prompt && tokens + block > end;
      if (is_wanted || is_passing) PlanSnapshot(i, tokens, is_passing);
    }
  }
}

void Scheduler::PlanSnapshot(size_t index, int64_t tokens, bool is_passing) {
  const PlannedSlice& slice = plan_.slices[index];
  ScheduledSequence& sequence = *slice.sequence;
  // Leaves a slot for each sequence that may be admitted.
  if (NumSpareStates() <= 0) return;
  HeldState state;
  if (is_passing && sequence.passing_block != kNoBlock)
    state = index_->TakePassing(std::exchange(sequence.passing_block, kNoBlock));
  if (state.id() == kNoState) state = states_->Take();
  plan_.snapshots.push_back({.slice = static_cast<int32_t>(index),
                             .rows = static_cast<int32_t>(tokens - slice.first),
                             .slot = state.id()});
  sequence.snapshots.push_back({tokens, is_passing, std::move(state)});
}

void Scheduler::KeepSnapshots(ScheduledSequence& sequence) {
  std::vector<ScheduledSequence::Snapshot>& snapshots = sequence.snapshots;
  size_t kept = 0;
  for (; kept < snapshots.size() && snapshots[kept].tokens <= sequence.num_computed; ++kept) {
    const BlockId block = sequence.blocks[0][snapshots[kept].tokens / limits_.block_size - 1];
    const bool is_passing = snapshots[kept].is_passing;
    index_->SetState(block, std::move(snapshots[kept].state), is_passing, sequence.share->client);
    if (is_passing) sequence.passing_block = block;
  }
  snapshots.erase(snapshots.begin(), snapshots.begin() + static_cast<int64_t>(kept));
}

void Scheduler::GoBackToSnapshot(ScheduledSequence& sequence) {
  sequence.snapshots.clear();
  sequence.proposed_states.clear();
  sequence.passing_block = kNoBlock;
  PrefixCursor& cursor = sequence.cursor;
  if (index_ != nullptr) cursor = index_->LastState(cursor, sequence.cache_salt);
  // Takes over the slot instead of copying it. A copy would be part of a step, which may fail and
  // in which the sequence may have no slice.
  if (cursor.num_blocks > 0) sequence.held_state = index_->TakeState(cursor.last_block);
  for (int64_t group = 0; group < num_groups(); ++group)
    sequence.blocks[group].Truncate(cursor.num_blocks);
  sequence.num_computed = sequence.num_begun = cursor.num_blocks * limits_.block_size;
}

int64_t Scheduler::NumSpareStates() const {
  return states_->num_available() - (limits_.max_num_seqs - num_running());
}

void Scheduler::PlanProposedStates() {
  if (states_ == nullptr) return;
  for (size_t i = 0; i < plan_.slices.size(); ++i) {
    if (plan_.slices[i].num_proposed == 0) continue;
    int32_t rows = 0;
    for (const HeldState& state : plan_.slices[i].sequence->proposed_states) {
      plan_.snapshots.push_back(
          {.slice = static_cast<int32_t>(i), .rows = ++rows, .slot = state.id()});
    }
  }
}

// Keeps the states at the last block border inside the accepted draft tokens as the passing
// snapshot.
void Scheduler::KeepPassed(ScheduledSequence& sequence) {
  const int64_t border = sequence.num_computed / limits_.block_size * limits_.block_size;
  const int64_t place = border - sequence.proposed_from;
  if (place < 0 || border == sequence.num_computed) return;
  if (sequence.passing_block != kNoBlock)
    index_->TakePassing(std::exchange(sequence.passing_block, kNoBlock)).Release();
  const BlockId block = sequence.blocks[0][border / limits_.block_size - 1];
  index_->SetState(block, std::move(sequence.proposed_states[static_cast<size_t>(place)]),
                   /*is_passing=*/true, sequence.share->client);
  sequence.passing_block = block;
}

void Scheduler::TakeBackStates() {
  for (ScheduledSequence* sequence : running_) {
    std::vector<HeldState>& states = sequence->proposed_states;
    if (states.empty() || sequence->is_in_flight()) continue;
    const auto accepted = static_cast<size_t>(sequence->num_computed - sequence->proposed_from);
    CHECK_LE(accepted, states.size());
    if (index_ != nullptr) KeepPassed(*sequence);
    // If all draft tokens were accepted, the sequence's own slot already has the states.
    if (accepted < states.size()) sequence->held_state = std::move(states[accepted]);
    states.clear();
  }
}

}  // namespace sluice
