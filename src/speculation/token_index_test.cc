#include "speculation/token_index.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Candidates(const TokenIndex& index, std::vector<int32_t> tail,
                                 int most = 1000) {
  std::vector<uint32_t> found;
  index.ForEachCandidate(tail, most, [&](uint32_t position) {
    if (index.MatchLength(position, tail) >= 2) found.push_back(position);
    return true;
  });
  return found;
}

TEST(TokenIndex, FindsThePlacesBehindLatestFirst) {
  TokenIndex index(64, 2);
  index.Append(std::vector<int32_t>{1, 2, 3, 1, 2, 4, 1, 2});
  EXPECT_EQ(index.size(), 8u);
  EXPECT_THAT(Candidates(index, {1, 2}), ElementsAre(5, 2));
  EXPECT_THAT(Candidates(index, {1, 2}, 1), ElementsAre(5));
  EXPECT_THAT(Candidates(index, {2, 4}), ElementsAre(6));
  EXPECT_THAT(Candidates(index, {9, 9}), ElementsAre());
  EXPECT_EQ(index.At(5), 4);
}

TEST(TokenIndex, NothingIsFoundInAnEmptyOne) {
  const TokenIndex index(64, 2);
  EXPECT_THAT(Candidates(index, {0, 0}), ElementsAre());
}

TEST(TokenIndex, CountsEqualTokensBackwards) {
  TokenIndex index(64, 1);
  index.Append(std::vector<int32_t>{7, 1, 2, 3, 8});
  EXPECT_EQ(index.MatchLength(4, std::vector<int32_t>{9, 1, 2, 3}), 3);
  EXPECT_EQ(index.MatchLength(4, std::vector<int32_t>{2, 3}), 2);
  EXPECT_EQ(index.MatchLength(4, std::vector<int32_t>{6, 7, 1, 2, 3}), 4) << "the list begins";
  EXPECT_EQ(index.MatchLength(0, std::vector<int32_t>{8}), 0);
}

// Compares with a linear search through the stored tokens while the ring is overwritten many times.
TEST(TokenIndex, FindsAllThatIsKept) {
  std::mt19937 random(1);
  for (const int gram : {1, 2, 3}) {
    TokenIndex index(100, gram);  // rounded up to 128
    std::vector<int32_t> all;
    for (int round = 0; round < 400; ++round) {
      std::vector<int32_t> more(random() % 9);
      for (int32_t& token : more) token = static_cast<int32_t>(random() % 5);
      index.Append(more);
      all.insert(all.end(), more.begin(), more.end());
      if (static_cast<int>(all.size()) < gram) continue;
      const std::span<const int32_t> tail = std::span(all).last(static_cast<size_t>(gram));
      std::vector<uint32_t> expected, found;
      // The tokens before the first stored one may be overwritten.
      const size_t first = all.size() > 127 ? all.size() - 127 : 0;
      for (size_t place = all.size(); place-- > first + tail.size();) {
        if (std::equal(tail.begin(), tail.end(),
                       all.begin() + static_cast<ptrdiff_t>(place) - gram))
          expected.push_back(static_cast<uint32_t>(place));
      }
      index.ForEachCandidate(tail, 1000, [&](uint32_t position) {
        if (index.MatchLength(position, tail) == gram) found.push_back(position);
        return true;
      });
      ASSERT_EQ(found, expected) << gram << " " << round;
    }
  }
}

}  // namespace
}  // namespace sluice
