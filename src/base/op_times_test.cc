#include "base/op_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OpTimesTest, OperatorsOfOneNameAreAddedUp) {
  OpTimes times;
  OpTimes::Count& norm = times.Of("Norm x -> y");
  OpTimes::Count& unused = times.Of("Scale x");
  EXPECT_EQ(&times.Of("Norm x -> y"), &norm);
  EXPECT_NE(&unused, &norm);
  norm.Add(1'500'000'000);
  times.Of("Norm x -> y").Add(500'000'000);
  const std::vector<OpTime> all = times.All();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].op, "Norm x -> y");
  EXPECT_EQ(all[0].calls, 2);
  EXPECT_DOUBLE_EQ(all[0].seconds, 2);
}

TEST(OpTimesTest, LinesTellWhatWasCountedSinceTheLongestFirst) {
  const std::vector<OpTime> before = {{"Norm", 10, 1.0}, {"Embed", 3, 0.5}};
  const std::vector<OpTime> now = {{"Norm", 14, 1.25}, {"Embed", 3, 0.5}, {"Project", 4, 0.75}};
  EXPECT_THAT(OpTimeLines(now, before), ElementsAre(" 75.0 %     0.750 s         4 calls  Project",
                                                    " 25.0 %     0.250 s         4 calls  Norm"));
  EXPECT_THAT(OpTimeLines(now, now), IsEmpty());
}

}  // namespace
}  // namespace sluice
