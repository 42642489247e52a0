#include "server/api/request/repetition.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

int FirstHit(RepetitionRule rule, const std::vector<int32_t>& tokens) {
  RepetitionWatch watch(rule);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (watch.Push(tokens[i])) return static_cast<int>(i);
  }
  return -1;
}

TEST(RepetitionWatch, FindsPatternsOfAllowedSizes) {
  EXPECT_EQ(FirstHit({2, 1, 3}, {1, 2, 2, 2}), 3);
  EXPECT_EQ(FirstHit({2, 2, 3}, {1, 2, 2, 2}), -1);
  EXPECT_EQ(FirstHit({2, 0, 3}, {7, 1, 2, 1, 2, 1, 2}), 6);
  EXPECT_EQ(FirstHit({2, 0, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3}), -1);
  EXPECT_EQ(FirstHit({3, 0, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3}), 8);
  EXPECT_EQ(FirstHit({0, 0, 3}, {1, 1, 1, 1}), -1) << "off";
}

TEST(RepetitionWatch, GoesOnForLong) {
  RepetitionWatch watch({2, 2, 2});
  for (int32_t i = 0; i < 100000; ++i) ASSERT_FALSE(watch.Push(i));
  for (const int32_t token : {5, 6, 5}) ASSERT_FALSE(watch.Push(token));
  EXPECT_TRUE(watch.Push(6));
}

}  // namespace
}  // namespace sluice
