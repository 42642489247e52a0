// Groups of layers that see a part of the positions, and states of sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_testing.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::FourTokenBlocks;
using testing::Sequence;
using testing::World;

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

}  // namespace
}  // namespace sluice
