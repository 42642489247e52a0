// The order in which the scheduler admits and preempts sequences.
#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_testing.h"

namespace sluice {
namespace {

using testing::FourTokenBlocks;
using testing::Sequence;
using testing::World;

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

}  // namespace
}  // namespace sluice
