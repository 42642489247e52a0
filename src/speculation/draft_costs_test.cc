#include "speculation/draft_costs.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(DraftCosts, GuessesBeforeItHasMeasured) {
  DraftCosts costs(0.1);
  EXPECT_DOUBLE_EQ(costs.Pass(1), 0.1 * costs.Step(1));
  costs.LearnPass(1, 50);  // the first pass touches memory for the first time
  costs.LearnPass(1, 2);
  EXPECT_DOUBLE_EQ(costs.Step(1), 20);
  EXPECT_GT(costs.Step(1, 4), costs.Step(1));
  EXPECT_LT(costs.Step(1, 4), 1.2 * costs.Step(1));
}

TEST(DraftCosts, KeepsNumbersOfDraftTokensApart) {
  DraftCosts costs(0.1);
  costs.LearnStep(1, 0, 1);
  for (int i = 0; i < 60; ++i) costs.LearnStep(1, i % 2 == 0 ? 2 : 8, i % 2 == 0 ? 1.5 : 1.6);
  EXPECT_NEAR(costs.Step(1, 2), 1.5, 0.01);
  EXPECT_NEAR(costs.Step(1, 8), 1.6, 0.01);
  EXPECT_NEAR(costs.Step(1, 1), 1.25, 0.01);
  EXPECT_NEAR(costs.Step(1, 5), 1.55, 0.01);
  EXPECT_LT(costs.Step(1, 10), 1.65);
  EXPECT_NEAR(costs.Row(1), 0.6 / 8, 0.01);
}

TEST(DraftCosts, KeepsNumbersOfSequencesApart) {
  DraftCosts costs(0.1);
  costs.LearnStep(1, 0, 1);
  costs.LearnStep(8, 0, 2);
  for (int i = 0; i < 30; ++i) {
    costs.LearnStep(8, 8, 4);
    costs.LearnPass(8, 0.8);
    costs.LearnPass(1, 0.1);
  }
  EXPECT_NEAR(costs.Step(8, 8), 4, 0.01);
  EXPECT_LT(costs.Step(1, 8), 1.3);
  EXPECT_NEAR(costs.Pass(7), 0.8, 0.01);
  EXPECT_NEAR(costs.Pass(1), 0.1, 0.01);
  EXPECT_DOUBLE_EQ(costs.Step(7), 2) << "the nearest number";
}

// The first measurement may be of a step that waited for something else, or that touched memory for
// the first time.
TEST(DraftCosts, DoesNotBelieveASingleMeasurement) {
  DraftCosts costs(0.1);
  costs.LearnStep(1, 0, 1);
  costs.LearnStep(1, 4, 3);
  EXPECT_LT(costs.Step(1, 4), 2.1);
  costs.LearnPass(1, 50);
  EXPECT_DOUBLE_EQ(costs.Pass(1), 0.1);
  costs.LearnPass(1, 1);
  EXPECT_LT(costs.Pass(1), 0.6);
}

TEST(DraftCosts, DropsOldMeasurements) {
  DraftCosts costs(0.1);
  costs.LearnStep(1, 0, 1);
  costs.LearnStep(1, 4, 7);
  EXPECT_GT(costs.Step(1, 4), 3);
  for (int i = 0; i < 200; ++i) costs.LearnStep(1, 0, 1);
  EXPECT_LT(costs.Step(1, 4), 1.2);
}

TEST(DraftCosts, TakesMoreSequencesAndTokensThanItTellsApart) {
  DraftCosts costs(0.1);
  costs.LearnStep(1000, 0, 1);
  for (int i = 0; i < 30; ++i) {
    costs.LearnStep(1000, 500, 2);
    costs.LearnPass(1000, 0.5);
  }
  EXPECT_DOUBLE_EQ(costs.Step(2000), 1);
  EXPECT_NEAR(costs.Step(2000, 700), 2, 0.05);
  EXPECT_NEAR(costs.Pass(2000), 0.5, 0.01);
}

}  // namespace
}  // namespace sluice
