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

// Calls Count for a sequence that was not looked up before.
PrefixIndex::Found Count(PrefixIndex& index, const std::vector<int32_t>& tokens, int64_t max_blocks,
                         std::string_view salt) {
  PrefixLookup lookup;
  return index.Count(tokens, max_blocks, salt, lookup);
}

// A sequence whose keys and values are computed, with its full blocks in the index.
struct Filled {
  BlockTables blocks;
  PrefixCursor cursor;
};

Filled Fill(BlockPool& pool, PrefixIndex& index, const std::vector<int32_t>& tokens,
            std::string_view salt = "", int64_t num_groups = 1, uint64_t owner = 0) {
  Filled sequence{BlockTables(num_groups), index.Start(salt)};
  sequence.blocks.set_owner(owner);
  const int64_t full = static_cast<int64_t>(tokens.size()) / kBlock;
  PrefixLookup lookup;
  index.Match(tokens, full, salt, lookup, sequence.cursor, sequence.blocks);
  for (int64_t group = 0; group < num_groups; ++group)
    EXPECT_TRUE(pool.Take(full - sequence.blocks[group].size(), sequence.blocks[group]));
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
  Filled first = Fill(pool, index, Tokens(0, 11));  // two full blocks and 3 tokens
  EXPECT_EQ(index.num_indexed(), 2);
  EXPECT_EQ(Count(index, Tokens(0, 12), 3, "").blocks, 2);
  EXPECT_EQ(Count(index, Tokens(0, 12), 1, "").blocks, 1);
  EXPECT_EQ(Count(index, Tokens(0, 7), 9, "").blocks, 1);
  EXPECT_EQ(Count(index, Tokens(4, 8), 9, "").blocks, 0) << "the second block alone is no prefix";
}

TEST(PrefixIndex, AskingAgainVisitsOnlyWhatHasChanged) {
  BlockPool pool(300);
  PrefixIndex index(pool, kBlock);
  const std::vector<int32_t> tokens = Tokens(0, 250 * kBlock);
  const auto first_blocks = [&](int count) {
    return std::vector<int32_t>(tokens.begin(), tokens.begin() + count * kBlock);
  };
  PrefixLookup lookup;
  const auto expect = [&](int64_t blocks, int64_t unheld, int64_t most_visits) {
    const int64_t before = index.num_visits();
    const PrefixIndex::Found found = index.Count(tokens, 250, "", lookup);
    EXPECT_EQ(found.blocks, blocks);
    EXPECT_EQ(found.unheld, unheld);
    EXPECT_LE(index.num_visits() - before, most_visits);
    const PrefixIndex::Found anew = Count(index, tokens, 250, "");
    EXPECT_EQ(anew.blocks, blocks);
    EXPECT_EQ(anew.unheld, unheld);
  };
  constexpr int64_t kFew = 12;
  Fill(pool, index, first_blocks(200));  // released immediately: cached
  expect(200, 200, 200 + kFew);
  expect(200, 200, kFew);
  Filled held = Fill(pool, index, first_blocks(100));
  expect(200, 100, kFew);
  BlockList others;
  ASSERT_TRUE(pool.Take(130, others));  // the 100 free ones, and the last 30 cached ones
  expect(170, 70, 30 + kFew);
  expect(170, 70, kFew);
  others.Clear();
  Filled more = Fill(pool, index, first_blocks(220));
  expect(220, 0, 50 + kFew);
  more = {BlockTables(1), {}};
  held = {BlockTables(1), {}};
  EXPECT_TRUE(index.Reset());
  expect(0, 0, 220 + kFew);
  expect(0, 0, kFew);
}

TEST(PrefixIndex, SameTokensBehindAnotherPrefixAreAnotherBlock) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  std::vector<int32_t> other = Tokens(100, 4);
  const std::vector<int32_t> tail = Tokens(4, 4);
  other.insert(other.end(), tail.begin(), tail.end());
  Filled a = Fill(pool, index, Tokens(0, 8));
  EXPECT_EQ(Count(index, other, 2, "").blocks, 0);
  Filled b = Fill(pool, index, other);
  EXPECT_EQ(index.num_indexed(), 4);
  EXPECT_NE(a.blocks[0][1], b.blocks[0][1]);
}

TEST(PrefixIndex, SaltsSeparate) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  Filled a = Fill(pool, index, Tokens(0, 8), "alice");
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "alice").blocks, 2);
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "bob").blocks, 0);
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "").blocks, 0);
}

TEST(PrefixIndex, EqualBlocksComputedTwiceAreKeptOnce) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  const std::vector<int32_t> tokens = Tokens(0, 8);
  BlockTables a, b;
  PrefixCursor at_a = index.Start(""), at_b = index.Start("");
  ASSERT_TRUE(pool.Take(2, a[0]));
  ASSERT_TRUE(pool.Take(2, b[0]));
  for (int i = 0; i < 2; ++i) {
    index.Insert(std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock), "", at_a, a);
    index.Insert(std::span(tokens).subspan(static_cast<size_t>(i) * kBlock, kBlock), "", at_b, b);
  }
  EXPECT_TRUE(std::ranges::equal(a[0].ids(), b[0].ids()));
  EXPECT_EQ(pool.num_held(), 2);
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(PrefixIndex, EvictsTheLongestUnusedAndTheTailOfASequenceFirst) {
  BlockPool pool(4);
  PrefixIndex index(pool, kBlock);
  Fill(pool, index, Tokens(0, 8));    // released immediately: cached
  Fill(pool, index, Tokens(100, 8));  // released later, so more recently used
  EXPECT_EQ(pool.num_cached(), 4);
  BlockList list;
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "").blocks, 1) << "the tail of the older goes first";
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "").blocks, 0);
  EXPECT_EQ(Count(index, Tokens(100, 8), 2, "").blocks, 2);
}

TEST(PrefixIndex, AHitMakesABlockRecentAndHeld) {
  BlockPool pool(4);
  PrefixIndex index(pool, kBlock);
  Fill(pool, index, Tokens(0, 8));
  Fill(pool, index, Tokens(100, 8));
  Fill(pool, index, Tokens(0, 8));  // found again, and now the most recently used
  BlockList list;
  ASSERT_TRUE(pool.Take(2, list));
  EXPECT_EQ(Count(index, Tokens(0, 8), 2, "").blocks, 2);
  EXPECT_EQ(Count(index, Tokens(100, 8), 2, "").blocks, 0);
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

TEST(BlockPool, ADroppedFrontIsFreeAndItsEntriesAreAbsent) {
  BlockPool pool(6);
  BlockList list;
  ASSERT_TRUE(pool.Take(5, list));
  const BlockId fourth = list[3];
  list.DropFront(3);
  EXPECT_EQ(list.size(), 5);
  EXPECT_EQ(list.num_held(), 2);
  EXPECT_EQ(list[0], kNoBlock);
  EXPECT_EQ(list[3], fourth);
  EXPECT_EQ(pool.num_free(), 4);
  list.DropFront(2);
  EXPECT_EQ(list.num_absent(), 3) << "what is gone is gone";
  list.DropFront(5);
  EXPECT_EQ(pool.num_free(), 6);
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(list.size(), 6);
  list.Clear();
  EXPECT_EQ(pool.num_free(), 6);
  list.StartAt(2);
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(list.num_held(), 1);
}

TEST(AttentionSpan, MostBlocksCoverEveryStepAndNoMore) {
  for (const AttentionSpan group :
       {AttentionSpan{}, AttentionSpan{.chunk = 8}, AttentionSpan{.chunk = 6},
        AttentionSpan{.window = 5}, AttentionSpan{.chunk = 10, .window = 3}}) {
    for (const int64_t step : {1, 3, 4, 9}) {
      for (const int64_t tokens : {1, 4, 7, 30, 200}) {
        int64_t most = 0;
        for (int64_t computed = 0; computed < tokens; ++computed) {
          const int64_t end = BlocksForTokens(std::min(tokens, computed + step), kBlock);
          most = std::max(most, end - group.FirstSeen(computed) / kBlock);
        }
        const int64_t planned = MostBlocks(group, tokens, step, kBlock);
        EXPECT_GE(planned, most) << group.chunk << " " << group.window << " " << step;
        EXPECT_LE(planned, most + 1) << group.chunk << " " << group.window << " " << step;
      }
    }
  }
}

constexpr AttentionSpan kChunksOfThreeBlocks[] = {{}, {.chunk = 12}};

// Tests which blocks of a group with chunks a prefix of each length needs, and the effect of their
// eviction.
TEST(PrefixIndex, APrefixNeedsTheBlocksOfTheNextTokensChunk) {
  BlockPool pool(32);
  PrefixIndex index(pool, kBlock, kChunksOfThreeBlocks);
  Filled all = Fill(pool, index, Tokens(0, 32), "", 2);
  EXPECT_EQ(index.num_indexed(), 16);
  for (int64_t blocks = 0; blocks <= 8; ++blocks) {
    BlockTables tables(2);
    PrefixCursor cursor = index.Start("");
    PrefixLookup lookup;
    ASSERT_EQ(index.Match(Tokens(0, 32), blocks, "", lookup, cursor, tables), blocks);
    EXPECT_EQ(tables[0].num_held(), blocks);
    EXPECT_EQ(tables[1].size(), blocks);
    EXPECT_EQ(tables[1].num_absent(), blocks / 3 * 3) << "none of the chunks before";
    for (int64_t i = blocks / 3 * 3; i < blocks; ++i) EXPECT_EQ(tables[1][i], all.blocks[1][i]);
  }
  // The local blocks in the middle of the second chunk are reused for other content.
  all.blocks[1].DropFront(5);
  BlockList other;
  ASSERT_TRUE(pool.Take(32 - 16 + 1, other));
  EXPECT_EQ(Count(index, Tokens(0, 32), 8, "").blocks, 8) << "the last chunk is complete";
  EXPECT_EQ(Count(index, Tokens(0, 32), 5, "").blocks, 4) << "the fifth block is gone";
  ASSERT_TRUE(pool.Take(1, other));
  EXPECT_EQ(Count(index, Tokens(0, 32), 5, "").blocks, 3) << "a whole chunk needs nothing";
  EXPECT_EQ(Count(index, Tokens(0, 32), 5, "").unheld, 0);
  EXPECT_TRUE(index.CheckInvariant());
  EXPECT_TRUE(pool.CheckInvariant());
}

TEST(PrefixIndex, APrefixNeedsTheLastWindow) {
  BlockPool pool(32);
  const AttentionSpan groups[] = {{}, {.window = 6}, {}};
  PrefixIndex index(pool, kBlock, groups);
  Filled all = Fill(pool, index, Tokens(0, 24), "", 3);
  BlockTables tables(3);
  PrefixCursor cursor = index.Start("");
  // The next token, 20, sees positions from 15 on.
  PrefixLookup lookup;
  ASSERT_EQ(index.Match(Tokens(0, 24), 5, "", lookup, cursor, tables), 5);
  EXPECT_EQ(tables[1].num_absent(), 3);
  EXPECT_EQ(tables[2].num_absent(), 0);
  EXPECT_EQ(Count(index, Tokens(0, 24), 5, "").unheld, 0);
  tables.Clear();
  all.blocks.Clear();
  EXPECT_EQ(Count(index, Tokens(0, 24), 5, "").unheld, 5 + 2 + 5);
}

// Blocks of other groups are useless without the block of group 0 at their place.
TEST(PrefixIndex, CompanionsGoWithTheirBlock) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock, kChunksOfThreeBlocks);
  Fill(pool, index, Tokens(0, 16), "", 2);
  EXPECT_EQ(pool.num_cached(), 8);
  BlockList list;
  ASSERT_TRUE(pool.Take(1, list));
  EXPECT_EQ(pool.num_cached(), 6);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(Count(index, Tokens(0, 16), 4, "").blocks, 3);
  EXPECT_TRUE(index.CheckInvariant());
  EXPECT_TRUE(index.Reset());
  EXPECT_EQ(pool.num_free(), 7);
}

// An owner with many new blocks takes nothing from an owner that has less than half of the cached
// blocks. Blocks of running sequences do not count.
TEST(PrefixIndex, AFloodLeavesOthersTheirShare) {
  BlockPool pool(16);
  PrefixIndex index(pool, kBlock);
  const std::vector<int32_t> tokens = Tokens(1, 6 * kBlock);
  Fill(pool, index, tokens, "", 1, /*owner=*/1);
  for (int i = 0; i < 10; ++i) Fill(pool, index, Tokens(1000 * (i + 1), 5 * kBlock), "", 1, 2);
  EXPECT_EQ(Count(index, tokens, 6, "").blocks, 5);
  // An owner that has reached its share evicts its own least recently used blocks.
  for (int i = 0; i < 3; ++i) Fill(pool, index, Tokens(100'000 * (i + 1), 5 * kBlock), "", 1, 1);
  EXPECT_EQ(Count(index, tokens, 6, "").blocks, 0);
  EXPECT_TRUE(pool.CheckInvariant());
  EXPECT_TRUE(index.CheckInvariant());
}

// A block is evicted only after the blocks that continue it, even if it was used less recently.
TEST(PrefixIndex, ABlockIsEvictedAfterThoseThatFollowIt) {
  BlockPool pool(8);
  PrefixIndex index(pool, kBlock);
  const std::vector<int32_t> shared = Tokens(1, 4 * kBlock);
  Fill(pool, index, shared, "", 1, /*owner=*/1);
  Fill(pool, index, std::vector<int32_t>(shared.begin(), shared.begin() + 2 * kBlock), "", 1, 2);
  // Owner 1 now has two blocks, and owner 2 has two shared blocks and three others.
  Fill(pool, index, Tokens(1000, 3 * kBlock), "", 1, 2);
  Fill(pool, index, Tokens(2000, 2 * kBlock), "", 1, 3);
  EXPECT_TRUE(index.CheckInvariant());
  EXPECT_EQ(Count(index, shared, 4, "").blocks, 4);
  EXPECT_EQ(Count(index, Tokens(1000, 3 * kBlock), 3, "").blocks, 2);
}

TEST(PrefixIndex, RandomSharingKeepsTheInvariant) {
  std::mt19937 random(1);
  BlockPool pool(24);
  PrefixIndex index(pool, kBlock);
  std::vector<Filled> live;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 3 != 0) {
      // Sequences of only two different tokens share many prefixes.
      std::vector<int32_t> tokens(4 + random() % 20);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 8 == 0);
      const int64_t full = static_cast<int64_t>(tokens.size()) / kBlock;
      const auto found = Count(index, tokens, full, "");
      if (full - found.blocks <= pool.num_available() - found.unheld)
        live.push_back(Fill(pool, index, tokens, "", 1, random() % 4));
    } else if (!live.empty()) {
      live.erase(live.begin() + static_cast<int64_t>(random() % live.size()));
    }
    const Status status = pool.CheckInvariant();
    ASSERT_TRUE(status) << status.error().message;
    const Status indexed = index.CheckInvariant();
    ASSERT_TRUE(indexed) << indexed.error().message;
    ASSERT_GE(index.num_indexed(), pool.num_cached());
  }
  live.clear();
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_TRUE(index.Reset());
  EXPECT_EQ(pool.num_free(), 24);
}

}  // namespace
}  // namespace sluice
