// Sequences that share a prefix, or find their own blocks again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::FourTokenBlocks;
using testing::Options;
using testing::Sequence;
using testing::World;

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

}  // namespace
}  // namespace sluice
