// Expected values: Python 3.11.
#include "base/python_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(PythonRandom, ShuffleChoicesAndRandom) {
  PythonRandom random(0);
  std::vector<int> items(10);
  std::iota(items.begin(), items.end(), 0);
  random.Shuffle(items);
  EXPECT_THAT(items, ElementsAre(7, 8, 1, 5, 3, 4, 2, 0, 9, 6));
  EXPECT_THAT(random.Choices(10, 5), ElementsAre(3, 8, 2, 1, 1));
  EXPECT_DOUBLE_EQ(random.Random(), 0.09483076347685593);
}

TEST(PythonRandom, SeedsOfMoreThanOneWord) {
  EXPECT_DOUBLE_EQ(PythonRandom((uint64_t{1} << 40) + 7).Random(), 0.6137037779936511);
}

TEST(PythonRandom, DrawsAsPythonDoes) {
  PythonRandom random(1234);
  EXPECT_THAT(random.Sample(500, 5), ElementsAre(494, 398, 225, 59, 3));
  EXPECT_THAT(random.Sample(10, 3), ElementsAre(1, 0, 9));
  EXPECT_THAT(random.Sample(90, 7), ElementsAre(12, 45, 30, 2, 3, 44, 82));
  EXPECT_THAT(random.Sample(80, 7), ElementsAre(79, 61, 59, 19, 11, 23, 14));
}

}  // namespace
}  // namespace sluice
