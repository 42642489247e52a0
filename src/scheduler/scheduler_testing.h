// Test helper: a scheduler with blocks of four tokens, a runner that computes nothing, and a clock
// that the tests set.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/scheduler.h"

namespace sluice::testing {

struct Sequence : ScheduledSequence {
  std::string name;
  int64_t max_output = 1;
  int64_t finished_at = -1;  // number of the step
};

struct Options {
  int64_t prompt = 4;
  int64_t output = 4;
  int first_token = -1;  // first prompt token; -1: a unique prompt
  int64_t priority = 0;
  uint64_t client = 0;
  bool all_rows = false;
  std::string salt = "";
  ScheduledSequence* leader = nullptr;
};

inline SchedulerLimits FourTokenBlocks() {
  SchedulerLimits limits;
  limits.block_size = 4;
  limits.max_num_batched_tokens = 16;
  limits.max_num_seqs = 4;
  limits.max_prompt_logit_rows = 4;
  limits.chunked_prefill = true;
  return limits;
}

// Runs steps, appends a token where one is sampled, and checks C1 and C2 after each.
class World {
 public:
  // `num_states`: number of state slots; 0: sequences keep no states.
  World(const SchedulerLimits& limits, int64_t num_blocks, bool prefix_caching,
        int64_t num_states = 0)
      : limits_(limits),
        pool_(num_blocks),
        states_(std::max<int64_t>(1, num_states)),
        has_states_(num_states > 0),
        index_(pool_, limits.block_size, limits.groups, has_states_ ? &states_ : nullptr),
        scheduler_(limits, pool_, prefix_caching ? &index_ : nullptr,
                   has_states_ ? &states_ : nullptr) {}

  Sequence& Add(const std::string& name, const Options& options) {
    auto sequence = std::make_unique<Sequence>();
    sequence->name = name;
    const int first = options.first_token >= 0 ? options.first_token : 1000 * ++unique_;
    for (int64_t i = 0; i < options.prompt; ++i)
      sequence->tokens.push_back(first + static_cast<int32_t>(i));
    sequence->num_prompt_tokens = options.prompt;
    sequence->max_output = options.output;
    sequence->max_total_tokens = options.prompt + options.output;
    sequence->priority = options.priority;
    sequence->client = options.client;
    sequence->wants_all_rows = options.all_rows;
    sequence->cache_salt = options.salt;
    sequence->leader = options.leader;
    scheduler_.Add(*sequence);
    all_.push_back(std::move(sequence));
    return *all_.back();
  }

  // Runs a step. Returns slices as "name:tokens" in planned order.
  std::vector<std::string> Step() {
    const StepPlan& plan = scheduler_.Plan();
    ++steps_;
    std::vector<std::string> text;
    int64_t tokens = 0, prompt_rows = 0;
    ComputeStates(plan);
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<Sequence&>(*slice.sequence);
      text.push_back(sequence.name + ":" + std::to_string(slice.num_tokens));
      EXPECT_GT(slice.num_tokens, 0);
      EXPECT_EQ(slice.first, sequence.num_computed);
      Compute(slice);
      tokens += slice.num_tokens;
      if (slice.all_rows) prompt_rows += slice.num_tokens - slice.samples;
    }
    EXPECT_LE(tokens, limits_.max_num_batched_tokens);                          // C2
    EXPECT_LE(static_cast<int64_t>(plan.slices.size()), limits_.max_num_seqs);  // C2
    EXPECT_LE(scheduler_.num_running(), limits_.max_num_seqs);
    EXPECT_LE(prompt_rows, limits_.max_prompt_logit_rows);
    EXPECT_LE(plan.num_logit_rows, limits_.max_prompt_logit_rows + limits_.max_num_seqs);
    EXPECT_EQ(tokens, plan.num_tokens);
    std::vector<Sequence*> done, late;
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<Sequence&>(*slice.sequence);
      if (slice.samples && is_late_ && is_late_()) {
        scheduler_.CommitAllButLast(slice);
        late.push_back(&sequence);
      } else {
        scheduler_.Commit(slice);
      }
    }
    for (const PlannedSlice& slice : plan.slices) {
      auto& sequence = static_cast<Sequence&>(*slice.sequence);
      if (std::ranges::find(late, &sequence) != late.end()) continue;
      if (sequence.num_computed >= sequence.num_prompt_tokens) sequence.wants_all_rows = false;
      if (!slice.samples) continue;
      sequence.tokens.push_back(static_cast<int32_t>(sequence.tokens.size()));
      if (static_cast<int64_t>(sequence.tokens.size()) == sequence.max_total_tokens)
        done.push_back(&sequence);
    }
    for (Sequence* sequence : done) {
      sequence->finished_at = steps_;
      scheduler_.Remove(*sequence);
    }
    const Status status = scheduler_.CheckInvariant();  // C1
    EXPECT_TRUE(status) << status.error().message;
    return text;
  }

  // Simulates a model with states: each is a hash of all tokens before it.
  void ComputeStates(const StepPlan& plan) {
    if (!has_states_) return;
    for (const StateCopy& copy : plan.state_copies)
      contents_of_states_[copy.to] = contents_of_states_[copy.from];
    auto snapshot = plan.snapshots.begin();
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      const PlannedSlice& slice = plan.slices[i];
      const auto& sequence = static_cast<const Sequence&>(*slice.sequence);
      size_t hash = std::hash<std::string>()(sequence.cache_salt);
      const auto take = [&](int64_t position) {
        hash = hash * 0x9E3779B97F4A7C15u +
               static_cast<size_t>(sequence.tokens[static_cast<size_t>(position)]);
        hash ^= hash >> 29;
      };
      for (int64_t position = 0; position < slice.first; ++position) take(position);
      ASSERT_GE(slice.state, 0);
      if (slice.first > 0) {
        ASSERT_EQ(contents_of_states_[slice.state], hash) << sequence.name << " at " << slice.first;
      }
      for (int64_t row = 0; row < slice.num_tokens; ++row) {
        take(slice.first + row);
        if (snapshot == plan.snapshots.end() || snapshot->slice != static_cast<int32_t>(i) ||
            snapshot->rows != row + 1)
          continue;
        contents_of_states_[snapshot->slot] = hash;
        ++snapshot;
      }
      contents_of_states_[slice.state] = hash;
    }
    ASSERT_TRUE(snapshot == plan.snapshots.end()) << "snapshots are in order";
  }

  // Simulates a model: each token reads all positions that its group lets it attend to, and must
  // find what was computed for the same tokens.
  void Compute(const PlannedSlice& slice) {
    const auto& sequence = static_cast<const Sequence&>(*slice.sequence);
    const int64_t end = slice.first + slice.num_tokens;
    std::vector<size_t> contents;  // per position: a hash of all tokens up to it
    size_t hash = std::hash<std::string>()(sequence.cache_salt);
    for (int64_t i = 0; i < end; ++i) {
      hash =
          hash * 0x9E3779B97F4A7C15u + static_cast<size_t>(sequence.tokens[static_cast<size_t>(i)]);
      contents.push_back(hash ^ hash >> 29);
    }
    for (size_t group = 0; group < limits_.groups.size(); ++group) {
      const BlockList& table = sequence.blocks[static_cast<int64_t>(group)];
      ASSERT_LE(end, table.size() * limits_.block_size);
      for (int64_t i = limits_.groups[group].FirstSeen(slice.first); i < end; ++i) {
        const BlockId block = table[i / limits_.block_size];
        ASSERT_GE(block, 0);
        const std::pair<BlockId, int64_t> slot(block, i % limits_.block_size);
        const std::pair<size_t, size_t> content(group, contents[static_cast<size_t>(i)]);
        if (i >= slice.first) {
          ASSERT_TRUE(pool_.references(block) == 1) << "others read what is written";
          slots_[slot] = content;
        } else {
          ASSERT_EQ(slots_[slot], content) << sequence.name << " position " << i;
        }
      }
    }
  }

  void RunUntilIdle(int64_t most_steps) {
    for (int64_t i = 0; i < most_steps && scheduler_.has_work(); ++i) Step();
    EXPECT_FALSE(scheduler_.has_work());
    EXPECT_EQ(pool_.num_held(), 0);  // C7
  }

  // Advances the clock.
  void Pass(double seconds) {
    now_us_ += static_cast<int64_t>(1e6 * seconds);
    scheduler_.SetTime(now_us_);
  }

  void Abort(Sequence& sequence) { scheduler_.Remove(sequence); }
  void Abort(const std::vector<ScheduledSequence*>& sequences) { scheduler_.Remove(sequences); }

  // Whether a sampled token is late.
  void set_is_late(std::function<bool()> is_late) { is_late_ = std::move(is_late); }

  Scheduler& scheduler() { return scheduler_; }
  StatePool& states() { return states_; }
  BlockPool& pool() { return pool_; }
  PrefixIndex& index() { return index_; }
  int64_t steps() const { return steps_; }

 private:
  SchedulerLimits limits_;
  BlockPool pool_;
  StatePool states_;
  bool has_states_ = false;
  PrefixIndex index_;
  Scheduler scheduler_;
  std::function<bool()> is_late_;
  std::map<StateId, size_t> contents_of_states_;
  std::vector<std::unique_ptr<Sequence>> all_;
  // Keyed by block and offset: group and content.
  std::map<std::pair<BlockId, int64_t>, std::pair<size_t, size_t>> slots_;
  int unique_ = 0;
  int64_t steps_ = 0;
  int64_t now_us_ = 0;
};

}  // namespace sluice::testing
