// The engine contract's lines about the scheduler, with blocks of four tokens, a runner that
// computes nothing, and a clock that the tests set.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

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

SchedulerLimits FourTokenBlocks() {
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

TEST(Scheduler, C2BudgetsOfTokensAndSequences) {
  World world(FourTokenBlocks(), 64, false);
  for (const char* name : {"a", "b", "c", "d", "e"}) world.Add(name, {.prompt = 6, .output = 2});
  EXPECT_THAT(world.Step(), ElementsAre("a:6", "b:6", "c:4"));
  EXPECT_THAT(world.Step(), ElementsAre("a:1", "b:1", "c:2", "d:6"));
  EXPECT_THAT(world.Step(), ElementsAre("c:1", "d:1", "e:6"))
      << "a and b have ended, e gets a place";
}

TEST(Scheduler, C3DecodesFirstThenWhatIsLeftInChunks) {
  World world(FourTokenBlocks(), 64, false);
  world.Add("stream", {.prompt = 3, .output = 20});
  EXPECT_THAT(world.Step(), ElementsAre("stream:3"));
  world.Add("long", {.prompt = 40, .output = 2});
  world.Add("next", {.prompt = 2, .output = 2});
  EXPECT_THAT(world.Step(), ElementsAre("stream:1", "long:15"));
  EXPECT_THAT(world.Step(), ElementsAre("stream:1", "long:15"));
  EXPECT_THAT(world.Step(), ElementsAre("stream:1", "long:10", "next:2"));
  EXPECT_THAT(world.Step(), ElementsAre("stream:1", "long:1", "next:1"));
}

TEST(Scheduler, C3ThresholdKeepsALongPromptFromTakingTheWholeStep) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.long_prefill_token_threshold = 8;
  World world(limits, 64, false);
  world.Add("long", {.prompt = 40, .output = 2});
  world.Add("short", {.prompt = 5, .output = 2});
  EXPECT_THAT(world.Step(), ElementsAre("long:8", "short:5"));
  EXPECT_THAT(world.Step(), ElementsAre("short:1", "long:8"));
}

TEST(Scheduler, WithoutChunksAPromptWaitsForAStepThatHoldsIt) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.chunked_prefill = false;
  World world(limits, 64, false);
  world.Add("a", {.prompt = 10, .output = 3});
  world.Add("b", {.prompt = 10, .output = 1});
  world.Add("c", {.prompt = 2, .output = 1});
  EXPECT_THAT(world.Step(), ElementsAre("a:10")) << "c would fit but came later";
  EXPECT_THAT(world.Step(), ElementsAre("a:1", "b:10", "c:2"));
}

// The first sequence in order does not fit, although its prompt's beginning is cached. Finding that
// out in every step must not take a walk through the prompt.
TEST(Scheduler, ABlockedPromptIsLookedUpOnce) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_batched_tokens = 1024;
  World world(limits, 300, /*prefix_caching=*/true);
  world.Add("first", {.prompt = 800, .output = 1, .first_token = 1});
  world.Step();  // leaves 200 blocks in the cache
  const Sequence& busy = world.Add("busy", {.prompt = 396, .output = 100});
  world.Step();
  const Sequence& blocked = world.Add("blocked", {.prompt = 1100, .output = 4, .first_token = 1});
  world.Step();
  const int64_t before = world.index().num_visits();
  int64_t steps = 0;
  for (; busy.finished_at < 0; ++steps) EXPECT_THAT(world.Step(), ElementsAre("busy:1"));
  EXPECT_GT(steps, 90);
  EXPECT_LE(world.index().num_visits() - before, steps * 12);
  while (blocked.finished_at < 0) world.Step();
  EXPECT_GT(blocked.cached_tokens, 600);
}

TEST(Scheduler, C4AdmissionTakesTheWholePromptAndLeavesABlockForEachStream) {
  World world(FourTokenBlocks(), 8, false);
  world.Add("a", {.prompt = 8, .output = 8});
  world.Step();
  EXPECT_EQ(world.pool().num_held(), 2);
  Sequence& b = world.Add("b", {.prompt = 24, .output = 1});
  EXPECT_THAT(world.Step(), ElementsAre("a:1"))
      << "6 blocks would have to be left when a takes its third";
  world.RunUntilIdle(100);
  EXPECT_GT(b.finished_at, 0);
  EXPECT_EQ(world.scheduler().num_preemptions(), 0);
}

TEST(Scheduler, C4ALongPrefillHoldsItsBlocksFromTheStart) {
  World world(FourTokenBlocks(), 16, false);
  world.Add("long", {.prompt = 40, .output = 1});
  world.Step();
  EXPECT_EQ(world.pool().num_held(), 10);
}

TEST(Scheduler, C4TheCheapestVictimIsPreemptedAndCounted) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_batched_tokens = 64;
  World world(limits, 9, false);
  world.Add("old", {.prompt = 4, .output = 20});
  Sequence& big = world.Add("big", {.prompt = 12, .output = 10});
  Sequence& small = world.Add("small", {.prompt = 4, .output = 20});
  world.Step();
  while (world.scheduler().num_preemptions() == 0) world.Step();
  EXPECT_EQ(small.num_preemptions, 1)
      << "fewer tokens to compute again than big, and not the first of all";
  EXPECT_EQ(big.num_preemptions, 0);
  world.RunUntilIdle(200);
  EXPECT_GT(small.finished_at, 0);
}

TEST(Scheduler, C4NoThrash) {
  // Two streams that together need more blocks than there are: one waits for the other, instead of
  // preempting each other in turn.
  World world(FourTokenBlocks(), 10, false);
  world.Add("a", {.prompt = 4, .output = 32});
  world.Add("b", {.prompt = 4, .output = 32});
  world.RunUntilIdle(200);
  EXPECT_EQ(world.scheduler().num_preemptions(), 1);
}

TEST(Scheduler, C5FirstComeFirstServed) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = 1;
  World world(limits, 64, false);
  std::vector<Sequence*> all;
  for (int i = 0; i < 5; ++i) all.push_back(&world.Add("s" + std::to_string(i), {.priority = -i}));
  world.RunUntilIdle(100);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1]->finished_at, all[i]->finished_at);
}

TEST(Scheduler, C5PrioritiesGoFirst) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = 1;
  limits.policy = SchedulingPolicy::kPriority;
  World world(limits, 64, false);
  Sequence& later = world.Add("later", {.priority = 5});
  Sequence& soon = world.Add("soon", {.priority = -1});
  Sequence& soon2 = world.Add("soon2", {.priority = -1});
  world.RunUntilIdle(100);
  EXPECT_LT(soon.finished_at, soon2.finished_at);
  EXPECT_LT(soon2.finished_at, later.finished_at);
}

// The most urgent sequence gets the next place, however rarely places become free, and whatever the
// others' priorities.
TEST(Scheduler, C5AnUrgentSequenceIsAdmittedNext) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::kPriority, SchedulingPolicy::kFair}) {
    for (const int64_t distance : {1, 1000000}) {
      SchedulerLimits limits = FourTokenBlocks();
      limits.max_num_seqs = 2;
      limits.policy = policy;
      World world(limits, 400, false);
      std::vector<Sequence*> patient;
      for (int i = 0; i < 8; ++i) {
        patient.push_back(&world.Add("p", {.output = 150 + 20 * i, .priority = distance}));
      }
      for (int i = 0; i < 200; ++i) world.Step();
      const Sequence& a = world.Add("a", {.output = 4, .priority = -distance});
      const Sequence& b = world.Add("b", {.output = 4, .priority = -distance});
      world.RunUntilIdle(5000);
      const auto num_before = [&](const Sequence& urgent) {
        return std::ranges::count_if(
            patient, [&](const auto* p) { return p->finished_at < urgent.finished_at; });
      };
      EXPECT_LE(num_before(a), 3) << "two that had ended, and one whose place it took";
      EXPECT_LE(num_before(b), 4);
    }
  }
}

// If blocks run out, the least urgent sequence is preempted, not the urgent one that came last.
TEST(Scheduler, C4TheLeastUrgentIsPreempted) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::kPriority, SchedulingPolicy::kFair}) {
    for (const bool prefix_caching : {false, true}) {
      SchedulerLimits limits = FourTokenBlocks();
      limits.policy = policy;
      World world(limits, 16, prefix_caching);
      std::vector<Sequence*> patient;
      for (int i = 0; i < 3; ++i)
        patient.push_back(&world.Add("p", {.output = 40, .first_token = 7, .priority = 1000000}));
      for (int i = 0; i < 4; ++i) world.Step();
      const Sequence& urgent = world.Add("urgent", {.output = 40, .priority = -1000000});
      world.RunUntilIdle(2000);
      EXPECT_EQ(urgent.num_preemptions, 0);
      EXPECT_GT(world.scheduler().num_preemptions(), 0);
      for (const Sequence* p : patient) EXPECT_LT(urgent.finished_at, p->finished_at);
    }
  }
}

TEST(Scheduler, C5WaitingGainsLevelsUpToABound) {
  const auto finished_after = [](const Ageing& ageing) {
    SchedulerLimits limits = FourTokenBlocks();
    limits.max_num_seqs = 1;
    limits.policy = SchedulingPolicy::kPriority;
    limits.ageing = ageing;
    World world(limits, 64, false);
    const Sequence& humble = world.Add("humble", {.output = 2, .priority = 3});
    for (int i = 0; i < 40 && humble.finished_at < 0; ++i) {
      if (i % 2 == 0) world.Add("vip", {.output = 2});  // as many requests as can be served
      world.Step();
      world.Pass(1);
    }
    return humble.finished_at;
  };
  EXPECT_EQ(finished_after({}), -1);
  EXPECT_EQ(finished_after({.level_us = 1000000, .max_levels = 2}), -1) << "too little";
  const int64_t after = finished_after({.level_us = 2000000, .max_levels = 4});
  EXPECT_GE(after, 7) << "six seconds make up for three levels";
  EXPECT_LE(after, 30);
}

// A preempted sequence keeps the gain of its earlier waiting; running adds none.
TEST(Scheduler, C5TheGainIsThatOfAllTimesOfWaiting) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = 2;
  limits.policy = SchedulingPolicy::kPriority;
  limits.ageing = {.level_us = 1000000, .max_levels = 5};
  World world(limits, 10, false);
  world.Add("first", {.output = 32, .priority = -9});
  Sequence& second = world.Add("second", {.output = 32, .priority = 2});
  while (second.num_preemptions == 0) {
    world.Step();
    world.Pass(1);  // it runs
  }
  EXPECT_EQ(second.waited_us, 0);
  world.Pass(1.5);
  world.Add("later", {.output = 4, .priority = 1});
  std::vector<std::string> step;
  while (std::ranges::none_of(step, [](const auto& slice) { return !slice.starts_with("first"); }))
    step = world.Step();
  EXPECT_THAT(step[0], ::testing::StartsWith("second")) << "it had gained more than a level";
}

TEST(Scheduler, C5AnUrgentFollowerDoesNotWaitForAPreemptedLeader) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_batched_tokens = 4;
  limits.long_prefill_token_threshold = 2;
  limits.policy = SchedulingPolicy::kPriority;
  World world(limits, 13, true);
  world.Add("stream", {.output = 24});
  world.Step();
  Sequence& leader = world.Add("leader", {.prompt = 40, .first_token = 7, .priority = 5});
  world.Step();
  Sequence& urgent = world.Add("urgent", {.prompt = 38, .output = 1, .first_token = 7});
  world.Step();
  ASSERT_EQ(urgent.leader, &leader);
  while (leader.num_preemptions == 0) world.Step();
  EXPECT_EQ(urgent.leader, nullptr);
  world.RunUntilIdle(200);
  EXPECT_LT(urgent.finished_at, leader.finished_at);
}

TEST(Scheduler, C6AtLeastOnePromptTokenIsComputed) {
  World world(FourTokenBlocks(), 64, true);
  world.Add("a", {.prompt = 8, .output = 1, .first_token = 7});
  world.RunUntilIdle(10);
  Sequence& again = world.Add("b", {.prompt = 8, .output = 1, .first_token = 7});
  EXPECT_THAT(world.Step(), ElementsAre("b:4"))
      << "8 tokens are cached, but the last block is computed";
  EXPECT_EQ(again.cached_tokens, 4);
  Sequence& longer = world.Add("c", {.prompt = 9, .output = 1, .first_token = 7});
  EXPECT_THAT(world.Step(), ElementsAre("c:1"));
  EXPECT_EQ(longer.cached_tokens, 8);
}

TEST(Scheduler, C6SaltsDoNotShare) {
  World world(FourTokenBlocks(), 64, true);
  world.Add("a", {.prompt = 9, .output = 1, .first_token = 7, .salt = "x"});
  world.RunUntilIdle(10);
  world.Add("b", {.prompt = 9, .output = 1, .first_token = 7});
  EXPECT_THAT(world.Step(), ElementsAre("b:9"));
}

TEST(Scheduler, PreemptedSequenceComesBackThroughItsCachedBlocks) {
  World world(FourTokenBlocks(), 12, true);
  world.Add("old", {.prompt = 16, .output = 16});
  Sequence& young = world.Add("young", {.prompt = 12, .output = 16});
  while (young.num_preemptions == 0) world.Step();
  world.RunUntilIdle(200);
  EXPECT_EQ(young.cached_tokens, 0)
      << "what it finds after a preemption is not a saving of the prompt";
}

TEST(Scheduler, SiblingsWaitForTheFirstAndShareItsPrompt) {
  World world(FourTokenBlocks(), 64, true);
  Sequence& first = world.Add("first", {.prompt = 24, .output = 4, .first_token = 7});
  Sequence& second =
      world.Add("second", {.prompt = 24, .output = 4, .first_token = 7, .leader = &first});
  world.Add("other", {.prompt = 2, .output = 1});
  EXPECT_THAT(world.Step(), ElementsAre("first:16"));
  EXPECT_THAT(world.Step(), ElementsAre("first:8", "other:2"))
      << "the waiting sibling blocks nobody";
  EXPECT_THAT(world.Step(), ElementsAre("first:1", "second:4"));
  EXPECT_EQ(second.cached_tokens, 20);
}

TEST(Scheduler, ASiblingWhoseFirstIsGoneStartsAnyway) {
  World world(FourTokenBlocks(), 64, true);
  Sequence& first = world.Add("first", {.prompt = 24, .output = 4, .first_token = 7});
  world.Add("second", {.prompt = 24, .output = 4, .first_token = 7, .leader = &first});
  world.Step();
  world.Abort(first);
  EXPECT_THAT(world.Step(), ElementsAre("second:8")) << "it finds what the first left";
}

// Requests with a common prefix arrive together: the prefix is computed once, then the rest of
// each.
TEST(Scheduler, APromptWaitsForThePrefixThatAnotherComputes) {
  World world(FourTokenBlocks(), 64, true);
  world.Add("a", {.prompt = 24, .output = 4, .first_token = 7});
  Sequence& b = world.Add("b", {.prompt = 26, .output = 4, .first_token = 7});
  world.Add("other", {.prompt = 2, .output = 1});
  EXPECT_THAT(world.Step(), ElementsAre("a:16")) << "b has not begun, and the budget is used up";
  EXPECT_THAT(world.Step(), ElementsAre("a:8", "other:2"));
  EXPECT_THAT(world.Step(), ElementsAre("a:1", "b:2"));
  EXPECT_EQ(b.cached_tokens, 24);
}

TEST(Scheduler, APromptWaitsForNoMoreThanItShares) {
  World world(FourTokenBlocks(), 64, true);
  world.Add("a", {.prompt = 40, .output = 4, .first_token = 7});
  Sequence& b = world.Add("b", {.prompt = 21, .output = 4, .first_token = 7});
  world.Step();
  EXPECT_THAT(world.Step(), ElementsAre("a:16"));
  EXPECT_THAT(world.Step(), ElementsAre("a:8", "b:1")) << "before all of a is computed";
  EXPECT_EQ(b.cached_tokens, 20);
}

TEST(Scheduler, APromptThatSharesLittleDoesNotWait) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_batched_tokens = 40;
  limits.policy = SchedulingPolicy::kFair;
  const auto first_step = [&](const Options& first, const Options& second) {
    World world(limits, 64, true);
    world.Add("a", first);
    world.Add("b", second);
    return world.Step().size();
  };
  const Options long_one = {.prompt = 30, .first_token = 7};
  EXPECT_EQ(first_step(long_one, {.prompt = 10, .first_token = 7}), 1u);
  EXPECT_EQ(first_step({.prompt = 4, .first_token = 7}, {.prompt = 12, .first_token = 7}), 2u)
      << "a third of it";
  EXPECT_EQ(first_step(long_one, {.prompt = 10, .first_token = 8}), 2u);
  EXPECT_EQ(first_step(long_one, {.prompt = 4, .first_token = 7}), 2u) << "no whole block";
  EXPECT_EQ(first_step(long_one, {.prompt = 10, .first_token = 7, .client = 1}), 2u)
      << "nobody waits for another client";
  EXPECT_EQ(first_step(long_one, {.prompt = 10, .first_token = 7, .salt = "s"}), 2u);
  EXPECT_EQ(first_step(long_one, {.prompt = 10, .first_token = 7, .all_rows = true}), 2u);
}

TEST(Scheduler, APromptWhoseLeaderIsGoneStartsAnyway) {
  World world(FourTokenBlocks(), 64, true);
  Sequence& a = world.Add("a", {.prompt = 24, .output = 4, .first_token = 7});
  world.Add("b", {.prompt = 24, .output = 4, .first_token = 7});
  world.Add("c", {.prompt = 24, .output = 4, .first_token = 7});
  world.Step();
  world.Abort(a);
  EXPECT_THAT(world.Step(), ElementsAre("b:8")) << "it finds what the first left, and leads";
  EXPECT_THAT(world.Step(), ElementsAre("b:1", "c:4"));
}

// Removing the largest accepted requests must not delay everybody else.
TEST(Scheduler, ThousandsOfSequencesGoAtOnce) {
  World world(FourTokenBlocks(), 64, true);
  constexpr size_t kRequests = 4, kSiblings = 16384;
  std::vector<ScheduledSequence*> requests[kRequests];
  for (auto& siblings : requests) {
    for (size_t i = 0; i < kSiblings; ++i) {
      ScheduledSequence* leader = siblings.empty() ? nullptr : siblings.front();
      siblings.push_back(&world.Add("s", {.first_token = 7, .leader = leader}));
    }
  }
  world.Step();
  const auto cpu_seconds = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = cpu_seconds();
  for (const auto& siblings : requests) world.Abort(siblings);
  // One by one, each with a scan of all remaining sequences, removing them would take 10 s.
  EXPECT_LT(cpu_seconds() - begin, 3);
  EXPECT_FALSE(world.scheduler().has_work());
  EXPECT_EQ(world.pool().num_held(), 0);
}

TEST(Scheduler, PromptLogprobsComputeEverythingInSmallChunks) {
  World world(FourTokenBlocks(), 64, true);
  world.Add("a", {.prompt = 9, .output = 1, .first_token = 7});
  world.RunUntilIdle(10);
  world.Add("plain", {.prompt = 20, .output = 9});
  world.Add("all", {.prompt = 9, .output = 2, .first_token = 7, .all_rows = true});
  EXPECT_THAT(world.Step(), ElementsAre("plain:16"));
  EXPECT_THAT(world.Step(), ElementsAre("plain:4", "all:4"));
  EXPECT_THAT(world.Step(), ElementsAre("plain:1", "all:4"));
  EXPECT_THAT(world.Step(), ElementsAre("plain:1", "all:1"));
  EXPECT_THAT(world.Step(), ElementsAre("plain:1", "all:1"));
}

TEST(Scheduler, AFailedStepLeavesNothingInThePrefixIndex) {
  World world(FourTokenBlocks(), 64, true);
  Sequence& a = world.Add("a", {.prompt = 9, .output = 1});
  world.scheduler().Plan();
  world.Abort(a);  // no Commit
  EXPECT_EQ(world.index().num_indexed(), 0);
  EXPECT_EQ(world.pool().num_free(), 64);
}

SchedulerLimits WithChunks(int32_t chunk) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.groups = {{}, {.chunk = chunk}, {.chunk = chunk}};
  return limits;
}

TEST(SchedulerGroups, BlocksThatNobodySeesAgainAreFree) {
  World world(WithChunks(8), 64, false);
  Sequence& a = world.Add("a", {.prompt = 40, .output = 20});
  EXPECT_THAT(world.Step(), ElementsAre("a:16"));
  EXPECT_EQ(a.blocks[0].num_held(), 10) << "of group 0 for the whole prompt";
  EXPECT_EQ(a.blocks[1].num_held(), 2) << "two of six are left for the next step to begin with";
  EXPECT_EQ(a.blocks[1].num_absent(), 4);
  world.Step();
  world.Step();
  while (world.scheduler().has_work()) {
    EXPECT_LE(a.blocks[1].num_held(), 6);
    world.Step();
    if (a.num_computed > 41) {
      EXPECT_LE(a.blocks[2].num_held(), 2);
    }
  }
}

TEST(SchedulerGroups, AllPositionsOfGroupsDoNotHaveToFit) {
  // 30 blocks in group 0, and at most 6 at a time in each other group: 42, not 90.
  World world(WithChunks(8), 42, true);
  Sequence& a = world.Add("a", {.prompt = 100, .output = 20});
  world.RunUntilIdle(200);
  EXPECT_GT(a.finished_at, 0);
  EXPECT_EQ(a.num_preemptions, 0);
}

TEST(SchedulerGroups, APrefixIsFoundAcrossChunks) {
  World world(WithChunks(8), 128, true);
  world.Add("a", {.prompt = 30, .output = 1, .first_token = 7});
  world.RunUntilIdle(10);
  for (const int64_t prompt : {9, 13, 17, 21, 25, 30}) {
    Sequence& again = world.Add("again", {.prompt = prompt, .output = 1, .first_token = 7});
    world.Step();
    EXPECT_EQ(again.cached_tokens, (prompt - 1) / 4 * 4) << prompt;
    EXPECT_EQ(again.blocks[1].num_held(), 0);
  }
}

TEST(SchedulerGroups, SiblingsShareThePromptOfTheFirst) {
  World world(WithChunks(8), 64, true);
  Sequence& first = world.Add("first", {.prompt = 22, .output = 4, .first_token = 7});
  Sequence& second =
      world.Add("second", {.prompt = 22, .output = 4, .first_token = 7, .leader = &first});
  world.Step();
  world.Step();
  world.Step();
  EXPECT_EQ(second.cached_tokens, 20);
  EXPECT_EQ(second.blocks[1][4], first.blocks[1][4]);
}

TEST(SchedulerStates, ATurnComputesItsNewTokensOnly) {
  World world(FourTokenBlocks(), 64, true, 12);
  Sequence& first = world.Add("first", {.prompt = 30, .output = 11, .first_token = 0});
  world.RunUntilIdle(100);
  // The next turn: the first prompt with its answer, and 10 more tokens. The answer's last token
  // was not computed: 40 tokens of KV, all in whole blocks.
  Sequence& second = world.Add("second", {.prompt = 50, .output = 2, .first_token = 0});
  std::copy(first.tokens.begin(), first.tokens.end(), second.tokens.begin());
  world.RunUntilIdle(100);
  EXPECT_EQ(second.cached_tokens, 40);
  // The same prompt again: all but the last block is found.
  Sequence& again = world.Add("again", {.prompt = 50, .output = 2, .first_token = 0});
  std::copy(first.tokens.begin(), first.tokens.end(), again.tokens.begin());
  world.RunUntilIdle(100);
  EXPECT_EQ(again.cached_tokens, 48);
}

TEST(SchedulerStates, ASharedBeginningGetsASnapshotWhenItIsSeenTwice) {
  World world(FourTokenBlocks(), 64, true, 12);
  const auto add = [&](const char* name, int32_t own) -> Sequence& {
    Sequence& sequence = world.Add(name, {.prompt = 30, .output = 1, .first_token = 0});
    for (size_t i = 20; i < 30; ++i) sequence.tokens[i] = own;
    return sequence;
  };
  add("first", 1000);
  world.RunUntilIdle(100);
  Sequence& second = add("second", 2000);
  world.RunUntilIdle(100);
  EXPECT_EQ(second.cached_tokens, 0) << "the first has one snapshot, behind what they share";
  Sequence& third = add("third", 3000);
  world.RunUntilIdle(100);
  EXPECT_EQ(third.cached_tokens, 20);
}

TEST(SchedulerStates, SnapshotsOfALongPromptLieAsFarApartAsAsked) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.snapshot_interval = 12;
  World world(limits, 64, true, 20);
  world.Add("first", {.prompt = 50, .output = 1, .first_token = 0});
  world.RunUntilIdle(100);
  EXPECT_EQ(world.states().num_kept(), 4) << "after 12, 24, 36 and 48 tokens";
  Sequence& part = world.Add("part", {.prompt = 31, .output = 1, .first_token = 0});
  world.RunUntilIdle(100);
  EXPECT_EQ(part.cached_tokens, 24);
}

TEST(SchedulerStates, SnapshotsLeaveASlotToWhoIsAdmitted) {
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_batched_tokens = 64;
  World world(limits, 64, true, 4);
  for (const char* name : {"a", "b", "c", "d"}) world.Add(name, {.prompt = 9, .output = 3});
  EXPECT_THAT(world.Step(), ElementsAre("a:9", "b:9", "c:9", "d:9"));
  EXPECT_EQ(world.states().num_held(), 4) << "no slot is left for snapshots";
  world.RunUntilIdle(100);
}

TEST(SchedulerStates, ALateTokenIsComputedAgainFromTheLastSnapshot) {
  World world(FourTokenBlocks(), 64, true, 8);
  Sequence& sequence = world.Add("a", {.prompt = 7, .output = 4, .first_token = 0});
  bool is_late = true;
  world.set_is_late([&] { return is_late; });
  EXPECT_THAT(world.Step(), ElementsAre("a:7"));
  sequence.is_held = true;
  EXPECT_THAT(world.Step(), ElementsAre()) << "its mask is not there";
  sequence.is_held = is_late = false;
  EXPECT_THAT(world.Step(), ElementsAre("a:3")) << "behind the snapshot at 4 tokens";
  EXPECT_THAT(world.Step(), ElementsAre("a:1"));
  world.RunUntilIdle(10);
}

TEST(SchedulerStates, ALateTokenWithoutSnapshotsBeginsAgain) {
  World world(FourTokenBlocks(), 64, false, 8);
  world.Add("a", {.prompt = 7, .output = 4, .first_token = 0});
  bool is_late = true;
  world.set_is_late([&] { return std::exchange(is_late, false); });
  EXPECT_THAT(world.Step(), ElementsAre("a:7"));
  EXPECT_THAT(world.Step(), ElementsAre("a:7"));
  world.RunUntilIdle(10);
}

// Checks C1 and C2 after every step (World::Step), C5: every sequence finishes, and C7: nothing is
// left, with sequences that share prefixes, run out of blocks and are aborted at any time.
class RandomScheduler : public ::testing::TestWithParam<int> {};

TEST_P(RandomScheduler, KeepsTheContract) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = pick(1, 8);
  limits.max_num_batched_tokens = std::max(limits.max_num_seqs, pick(4, 40));
  limits.max_prompt_logit_rows = pick(1, 8);
  limits.policy = static_cast<SchedulingPolicy>(pick(0, 2));
  limits.ageing = {.level_us = pick(0, 5), .max_levels = pick(0, 3)};
  limits.long_prefill_token_threshold = random() % 3 == 0 ? pick(1, 12) : 0;
  limits.chunked_prefill = random() % 4 != 0;
  if (!limits.chunked_prefill) limits.max_num_batched_tokens = 64;
  const bool has_states = random() % 2 == 0;
  if (has_states) limits.snapshot_interval = 4 * pick(0, 4);
  for (int64_t others = pick(0, 3); others > 0; --others) {
    AttentionSpan group;
    if (!has_states && random() % 4 != 0)
      (random() % 2 == 0 ? group.chunk : group.window) = pick(1, 30);
    limits.groups.push_back(group);
  }
  const int64_t num_blocks = std::max(pick(16, 40), MostBlocks(limits, 64) + pick(0, 20));
  World world(limits, num_blocks, random() % 4 != 0,
              has_states ? limits.max_num_seqs + pick(0, 12) : 0);
  if (has_states) world.set_is_late([&] { return random() % 20 == 0; });
  std::vector<Sequence*> live;
  for (int step = 0; step < 2000; ++step) {
    if (live.size() < 40 && random() % 4 == 0) {
      Options options{.prompt = pick(1, 40), .output = pick(1, 24)};
      if (random() % 2 == 0) options.first_token = static_cast<int>(random() % 3);
      options.priority = pick(-2, 2);
      options.client = static_cast<uint64_t>(pick(1, 4));
      options.all_rows = random() % 8 == 0;
      if (random() % 4 == 0 && !live.empty()) options.leader = live.back();
      live.push_back(&world.Add("s", options));
    }
    world.Step();
    std::erase_if(live, [](const Sequence* sequence) { return sequence->finished_at >= 0; });
    if (!live.empty() && random() % 16 == 0) {
      const auto first = static_cast<int64_t>(random() % live.size());
      const auto last = std::min<int64_t>(first + pick(1, 3), std::ssize(live));
      world.Abort({live.begin() + first, live.begin() + last});
      live.erase(live.begin() + first, live.begin() + last);
    }
    if (::testing::Test::HasFailure()) return;
  }
  world.RunUntilIdle(20000);
  for (const Sequence* sequence : live) EXPECT_GT(sequence->finished_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomScheduler, ::testing::Range(0, 40));

// Compares who is admitted and preempted with ranks computed here from priorities and waiting
// times.
class RandomPriorities : public ::testing::TestWithParam<int> {};

TEST_P(RandomPriorities, TheBestRankIsAdmittedAndTheWorstPreempted) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  SchedulerLimits limits = FourTokenBlocks();
  limits.max_num_seqs = pick(1, 6);
  limits.max_num_batched_tokens = std::max(limits.max_num_seqs, pick(4, 40));
  limits.policy = pick(0, 1) == 0 ? SchedulingPolicy::kPriority : SchedulingPolicy::kFair;
  const int64_t level_us = random() % 3 == 0 ? 0 : pick(1, 3) * 1000000, max_levels = pick(0, 4);
  limits.ageing = {.level_us = level_us, .max_levels = max_levels};
  const int64_t spread = random() % 2 == 0 ? 3 : 1000000;
  World world(limits, pick(16, 30), false);
  std::vector<Sequence*> live;
  std::map<const Sequence*, double> waited;  // seconds
  const auto rank_of = [&](const Sequence* sequence) {
    const double gained =
        level_us == 0 ? 0
                      : std::floor(waited[sequence] * 1e6 / static_cast<double>(level_us) * 1e3);
    return 1e3 * static_cast<double>(sequence->priority) -
           std::min(gained, 1e3 * static_cast<double>(max_levels));
  };
  using State = ScheduledSequence::State;
  int64_t num_compared = 0;
  for (int step = 0; step < 1500 && !HasFailure(); ++step) {
    if (live.size() < 20 && random() % 3 == 0) {
      live.push_back(&world.Add(
          "s", {.prompt = pick(1, 30), .output = pick(1, 30), .priority = pick(-spread, spread)}));
    }
    const double seconds = static_cast<double>(pick(0, 8)) / 8;
    world.Pass(seconds);
    std::map<const Sequence*, State> before;
    for (const Sequence* sequence : live) {
      before[sequence] = sequence->state;
      if (sequence->state == State::kWaiting) waited[sequence] += seconds;
    }
    std::map<const Sequence*, int64_t> preemptions;
    for (const Sequence* sequence : live) preemptions[sequence] = sequence->num_preemptions;
    world.Step();
    std::vector<const Sequence*> admitted, preempted, left, kept;
    for (const Sequence* sequence : live) {
      if (sequence->num_preemptions > preemptions[sequence])
        preempted.push_back(sequence);
      else if (before[sequence] == State::kRunning)
        kept.push_back(sequence);
      else
        (sequence->state == State::kWaiting ? left : admitted).push_back(sequence);
    }
    for (const Sequence* in : admitted) {
      for (const Sequence* out : left) {
        ++num_compared;
        EXPECT_LE(rank_of(in), rank_of(out));
      }
    }
    for (const Sequence* out : preempted) {
      for (const Sequence* in : kept) {
        ++num_compared;
        EXPECT_GE(rank_of(out), rank_of(in));
      }
    }
    std::erase_if(live, [](const Sequence* sequence) { return sequence->finished_at >= 0; });
  }
  EXPECT_GT(num_compared, 100);
  world.RunUntilIdle(20000);
  for (const Sequence* sequence : live) EXPECT_GT(sequence->finished_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPriorities, ::testing::Range(0, 30));

}  // namespace
}  // namespace sluice
