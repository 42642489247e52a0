#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"

namespace sluice {
namespace {

constexpr int kBlock = 4;

std::vector<int32_t> Tokens(int first, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence whose KV is computed: its full blocks are in the index.
struct Filled {
  BlockList blocks;
  PrefixCursor cursor;
};

Filled Fill(BlockPool& pool, PrefixIndex& index, const std::vector<int32_t>& tokens,
            std::string_view salt = "") {
  Filled sequence{{}, index.Start(salt)};
  const int64_t full = static_cast<int64_t>(tokens.size()) / kBlock;
  index.Match(tokens, full, salt, sequence.cursor, sequence.blocks);
  EXPECT_TRUE(pool.Take(full - sequence.blocks.size(), sequence.blocks));
  while (sequence.cursor.num_blocks < full) {
    index.Insert(
        std::span(tokens).subspan(static_cast<size_t>(sequence.cursor.num_blocks * kBlock), kBlock),
        salt, sequence.cursor, sequence.blocks);
  }
  return sequence;
}

TEST(BlockPool, TakesAllOrNothingAndGetsEverythingBack) {
  BlockPool pool(4);
  BlockList a, b;
  EXPECT_TRUE(pool.Take(3, a));
  EXPECT_FALSE(pool.Take(2, b));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.num_free(), 1);
  BlockList moved = std::move(a);
  EXPECT_EQ(moved.size(), 3);
  moved = BlockList();
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(BlockPool, SharedBlockIsHeldUntilTheLastReferenceGoes) {
  BlockPool pool(2);
  BlockList a, b;
  ASSERT_TRUE(pool.Take(1, a));
  pool.Share(a[0], b);
  a.Clear();
  EXPECT_EQ(pool.num_held(), 1);
  b.Clear();
  EXPECT_EQ(pool.num_held(), 0);
}

TEST(PrefixIndex, FindsFullBlocksOnlyAndNoMoreThanAsked) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  Filled first = Fill(pool, index, Tokens(0, 11));  // two full blocks
  EXPECT_EQ(index.num_indexed(), 2);
  EXPECT_EQ(index.Count(Tokens(0, 12), 3, "").blocks, 2);
  EXPECT_EQ(index.Count(Tokens(0, 12), 1, "").blocks, 1);
  EXPECT_EQ(index.Count(Tokens(0, 7), 9, "").blocks, 1);
  EXPECT_EQ(index.Count(Tokens(4, 8), 9, "").blocks, 0) << "the second block alone is no prefix";
}

TEST(PrefixIndex, SameTokensBehindAnotherPrefixAreAnotherBlock) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  std::vector<int32_t> other = Tokens(100, 4);
  const std::vector<int32_t> tail = Tokens(4, 4);
  other.insert(other.end(), tail.begin(), tail.end());
  Filled a = Fill(pool, index, Tokens(0, 8));
  EXPECT_EQ(index.Count(other, 2, "").blocks, 0);
  Filled b = Fill(pool, index, other);
  EXPECT_EQ(index.num_indexed(), 4);
  EXPECT_NE(a.blocks[1], b.blocks[1]);
}

TEST(PrefixIndex, SaltsSeparate) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  Filled a = Fill(pool, index, Tokens(0, 8), "alice");
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "alice").blocks, 2);
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "bob").blocks, 0);
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "").blocks, 0);
}

TEST(PrefixIndex, EqualBlocksComputedTwiceAreKeptOnce) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  const std::vector<int32_t> tokens = Tokens(0, 8);
  BlockList a, b;
  PrefixCursor at_a = index.Start(""), at_b = index.Start("");
  ASSERT_TRUE(pool.Take(2, a));
  ASSERT_TRUE(pool.Take(2, b));
  for (int i = 0; i < 2; ++i) {
    index.Insert(std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock), "", at_a, a);
    index.Insert(std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock), "", at_b, b);
  }
  EXPECT_TRUE(std::ranges::equal(a.ids(), b.ids()));
  EXPECT_EQ(pool.num_held(), 2);
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(PrefixIndex, EvictsTheLongestUnusedAndTheTailOfASequenceFirst) {
  BlockPool pool(4);
  PrefixIndex index(pool, kBlock);
  Fill(pool, index, Tokens(0, 8));    // released at once: cached
  Fill(pool, index, Tokens(100, 8));  // likewise, used later
  EXPECT_EQ(pool.num_cached(), 4);
  BlockList list;
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "").blocks, 1) << "the tail of the older goes first";
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "").blocks, 0);
  EXPECT_EQ(index.Count(Tokens(100, 8), 2, "").blocks, 2);
}

TEST(PrefixIndex, AHitMakesABlockRecentAndHeld) {
  BlockPool pool(4);
  PrefixIndex index(pool, kBlock);
  Fill(pool, index, Tokens(0, 8));
  Fill(pool, index, Tokens(100, 8));
  Fill(pool, index, Tokens(0, 8));  // hit: now the most recent
  BlockList list;
  ASSERT_TRUE(pool.Take(2, list));
  EXPECT_EQ(index.Count(Tokens(0, 8), 2, "").blocks, 2);
  EXPECT_EQ(index.Count(Tokens(100, 8), 2, "").blocks, 0);
  Filled held = Fill(pool, index, Tokens(0, 8));
  EXPECT_FALSE(pool.Take(1, list)) << "what is held is never evicted";
}

TEST(PrefixIndex, ResetForgetsWhatNobodyHolds) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  Fill(pool, index, Tokens(0, 8));
  Filled held = Fill(pool, index, Tokens(100, 4));
  EXPECT_FALSE(index.Reset());
  EXPECT_EQ(index.num_indexed(), 1);
  EXPECT_EQ(pool.num_cached(), 0);
  held.blocks.Clear();
  EXPECT_TRUE(index.Reset());
  EXPECT_EQ(pool.num_free(), 8);
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(PrefixIndex, RandomSharingKeepsTheInvariant) {
  std::mt19937 random(1);
  BlockPool pool(24);
  PrefixIndex index(pool, kBlock);
  std::vector<Filled> live;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 3 != 0) {
      // Sequences over two tokens share many prefixes.
      std::vector<int32_t> tokens(4 + random() % 20);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 8 == 0);
      const int64_t full = static_cast<int64_t>(tokens.size()) / kBlock;
      const auto found = index.Count(tokens, full, "");
      if (full - found.blocks <= pool.num_available() - found.unheld)
        live.push_back(Fill(pool, index, tokens));
    } else if (!live.empty()) {
      live.erase(live.begin() + static_cast<int64_t>(random() % live.size()));
    }
    const Status status = pool.CheckInvariant();
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_GE(index.num_indexed(), pool.num_cached());
  }
  live.clear();
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_TRUE(index.Reset());
  EXPECT_EQ(pool.num_free(), 24);
}

}  // namespace
}  // namespace sluice
