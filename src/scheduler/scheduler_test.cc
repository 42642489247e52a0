// The engine contract's lines about the scheduler's budgets and admission.
#include <ctime>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::FourTokenBlocks;
using testing::Sequence;
using testing::World;

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

// The first sequence in order does not fit, although its prompt's beginning is cached. Finding this
// out again in later steps must not require another walk through the prompt.
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
  // Removing them one by one, each with a scan of all remaining sequences, would take 10 s.
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

}  // namespace
}  // namespace sluice
