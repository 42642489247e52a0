#include "server/door/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Answer = Placement::Answer;

PlacedModel Idle(int model, int64_t bytes, int64_t last_used) {
  return {.model = model, .bytes = bytes, .last_used = last_used};
}
PlacedModel Busy(int model, int64_t bytes, int64_t last_used = 0) {
  PlacedModel placed = Idle(model, bytes, last_used);
  placed.is_busy = true;
  return placed;
}
PlacedModel Pinned(int model, int64_t bytes) {
  PlacedModel placed = Idle(model, bytes, 0);
  placed.is_pinned = true;
  return placed;
}

TEST(Placement, WhatFitsPutsNothingOut) {
  const Placement placement = Place(100, {Idle(0, 40, 1)}, {.model = 1, .bytes = 60});
  EXPECT_EQ(placement.answer, Answer::kNow);
  EXPECT_THAT(placement.put_out, IsEmpty());
}

TEST(Placement, TheLeastRecentlyUsedLeavesFirst) {
  const std::vector<PlacedModel> placed = {Idle(0, 40, 5), Idle(1, 40, 3), Idle(2, 20, 4)};
  EXPECT_THAT(Place(100, placed, {.model = 3, .bytes = 40}).put_out, ElementsAre(1));
  EXPECT_THAT(Place(100, placed, {.model = 3, .bytes = 60}).put_out, ElementsAre(1, 2));
  EXPECT_THAT(Place(100, placed, {.model = 3, .bytes = 100}).put_out, ElementsAre(1, 2, 0));
}

TEST(Placement, NoneLeavesWithoutNeed) {
  // Unloading only model 1 is enough, although model 0 would be unloaded first.
  EXPECT_THAT(
      Place(100, {Idle(0, 10, 1), Idle(1, 60, 2), Idle(2, 30, 3)}, {.model = 3, .bytes = 50})
          .put_out,
      ElementsAre(1));
}

TEST(Placement, LowerPriorityLeavesBeforeLongerIdle) {
  PlacedModel low = Idle(0, 50, 9);
  low.priority = -1;
  EXPECT_THAT(Place(100, {low, Idle(1, 50, 1)}, {.model = 2, .bytes = 50}).put_out, ElementsAre(0));
}

TEST(Placement, PinnedNeverLeaves) {
  const std::vector<PlacedModel> placed = {Pinned(0, 60), Idle(1, 40, 1)};
  EXPECT_THAT(Place(100, placed, {.model = 2, .bytes = 40}).put_out, ElementsAre(1));
  EXPECT_EQ(Place(100, placed, {.model = 2, .bytes = 41}).answer, Answer::kNever);
  EXPECT_EQ(PinnedBytes(placed, 2), 60);
  EXPECT_EQ(PinnedBytes(placed, 0), 0);
}

TEST(Placement, LargerThanTheBudgetNeverFits) {
  EXPECT_EQ(Place(100, {}, {.model = 0, .bytes = 101}).answer, Answer::kNever);
  EXPECT_EQ(Place(100, {}, {.model = 0, .bytes = 100}).answer, Answer::kNow);
}

TEST(Placement, IdleLeaveBeforeBusy) {
  const Placement placement =
      Place(100, {Busy(0, 50, 1), Idle(1, 50, 9)}, {.model = 2, .bytes = 50});
  EXPECT_EQ(placement.answer, Answer::kNow);
  EXPECT_THAT(placement.put_out, ElementsAre(1));
}

TEST(Placement, BusyOnesAreClosedAndNotPutOut) {
  const Placement placement =
      Place(100, {Busy(0, 50, 2), Busy(1, 30, 1), Idle(2, 20, 9)}, {.model = 3, .bytes = 50});
  EXPECT_EQ(placement.answer, Answer::kLater);
  EXPECT_THAT(placement.put_out, IsEmpty());
  EXPECT_THAT(placement.close, ElementsAre(1));
}

TEST(Placement, BusyOnesOfHigherPriorityAreNotClosed) {
  PlacedModel high = Busy(0, 100);
  high.priority = 1;
  EXPECT_THAT(Place(100, {high}, {.model = 1, .bytes = 50}).close, IsEmpty());
  EXPECT_EQ(Place(100, {high}, {.model = 1, .bytes = 50}).answer, Answer::kLater);
  EXPECT_THAT(Place(100, {high}, {.model = 1, .bytes = 50, .priority = 1}).close, ElementsAre(0));
}

TEST(Placement, BusyOnesHaveATurn) {
  PlacedModel fresh = Busy(0, 100);
  fresh.had_a_turn = false;
  const Placement placement = Place(100, {fresh}, {.model = 1, .bytes = 50});
  EXPECT_EQ(placement.answer, Answer::kLater);
  EXPECT_THAT(placement.close, IsEmpty());
}

TEST(Placement, ModelsOnTheirWayCountAndStay) {
  PlacedModel loading = Idle(0, 60, 0);
  loading.is_settled = false;
  EXPECT_EQ(Place(100, {loading}, {.model = 1, .bytes = 41}).answer, Answer::kLater);
  EXPECT_EQ(Place(100, {loading}, {.model = 1, .bytes = 40}).answer, Answer::kNow);
  EXPECT_THAT(Place(100, {loading, Idle(2, 40, 1)}, {.model = 1, .bytes = 40}).put_out,
              ElementsAre(2));
}

}  // namespace
}  // namespace sluice
