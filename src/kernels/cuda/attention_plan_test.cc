#include "kernels/cuda/attention_plan.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/attention_tiles.h"

namespace sluice::device {
namespace {

AttentionLimits Limits(int num_heads, int num_kv_heads) {
  return {.max_rows = 4096,
          .max_slices = 300,
          .max_context = 140000,
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = 128};
}

AttentionPlan PlanOf(const AttentionLimits& limits, const std::vector<AttentionSliceInfo>& slices,
                     const AttentionSpan& span = {}) {
  AttentionPlan plan(limits);
  PlanAttention(limits, slices, span, plan);
  return plan;
}

// Checks a plan: every token's positions are covered once, in order, and are split only where
// allowed; the partial results fit; the longest wide tiles come first.
void ExpectSound(const AttentionLimits& limits, const std::vector<AttentionSliceInfo>& slices,
                 const AttentionSpan& span) {
  AttentionPlan plan(limits);
  const AttentionItem* items = plan.items.data();
  const AttentionMerge* merges = plan.merges.data();
  PlanAttention(limits, slices, span, plan);
  EXPECT_EQ(plan.items.data(), items);  // no reallocation
  EXPECT_EQ(plan.merges.data(), merges);
  EXPECT_LE(
      plan.num_partial_tokens * limits.num_heads * (limits.head_dim + kPartialExtraNumbers) * 4,
      AttentionPartialsBytes(limits));
  const int heads = HeadTilesOf(limits.num_heads, limits.num_kv_heads).heads;
  // For each row: begin and end of the positions seen so far.
  std::vector<std::pair<int, int>> seen(4096, {-1, -1});
  std::vector<int> item_of_partial(static_cast<size_t>(plan.num_partial_tokens), -1);
  for (int i = 0; i < static_cast<int>(plan.items.size()); ++i) {
    const AttentionItem& item = plan.items[static_cast<size_t>(i)];
    const AttentionSliceInfo& slice = slices[static_cast<size_t>(item.slice)];
    EXPECT_LE(item.num_tokens * heads, i < plan.num_wide_items ? kWideTileRows : kNarrowTileRows);
    ASSERT_GT(item.num_tokens, 0);
    ASSERT_LE(item.first_token + item.num_tokens, slice.num_tokens);
    ASSERT_LT(item.begin, item.end);
    if (i > 0 && i < plan.num_wide_items) {
      const AttentionItem& before = plan.items[static_cast<size_t>(i) - 1];
      EXPECT_GE(before.end - before.begin, item.end - item.begin);
    }
    for (int token = item.first_token; token < item.first_token + item.num_tokens; ++token) {
      auto& [begin, end] = seen[static_cast<size_t>(slice.first_row) + static_cast<size_t>(token)];
      if (begin < 0)
        begin = item.begin;
      else
        ASSERT_EQ(item.begin, end);
      end = item.end;
    }
    if (item.partial >= 0) {
      EXPECT_GE(i, plan.num_wide_items);
      EXPECT_LE(item.end, (item.begin / kAttentionSplit + 1) * kAttentionSplit);
      for (int token = 0; token < item.num_tokens; ++token) {
        int& writer =
            item_of_partial.at(static_cast<size_t>(item.partial) + static_cast<size_t>(token));
        EXPECT_EQ(writer, -1);
        writer = i;
      }
    }
  }
  for (const AttentionSliceInfo& slice : slices) {
    for (int token = 0; token < slice.num_tokens; ++token) {
      const auto [begin, end] =
          seen[static_cast<size_t>(slice.first_row) + static_cast<size_t>(token)];
      EXPECT_LE(begin, span.FirstSeen(slice.context + token));
      EXPECT_GE(begin, span.FirstSeen(slice.context));
      EXPECT_GT(end, slice.context + token);
      EXPECT_LE(end, slice.context + slice.num_tokens);
    }
  }
  for (const AttentionMerge& merge : plan.merges) {
    EXPECT_GT(merge.num_partials, 1);
    for (int i = 0; i < merge.num_partials; ++i) {
      const int first = merge.first_partial + i * merge.num_tokens;
      const int writer = item_of_partial.at(static_cast<size_t>(first));
      const AttentionItem& item = plan.items[static_cast<size_t>(writer)];
      EXPECT_EQ(item.partial, first);
      EXPECT_EQ(item.num_tokens, merge.num_tokens);
      EXPECT_EQ(slices[static_cast<size_t>(item.slice)].first_row + item.first_token,
                merge.first_row);
      for (int token = 0; token < merge.num_tokens; ++token)
        item_of_partial[static_cast<size_t>(first) + static_cast<size_t>(token)] = -1;
    }
  }
  for (const int item : item_of_partial) EXPECT_EQ(item, -1);  // all partial results were merged
}

TEST(AttentionPlan, CoversEveryStep) {
  std::mt19937 random(3);
  const auto integer = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (const auto& [num_heads, num_kv_heads] :
       std::vector<std::pair<int, int>>{{64, 8}, {40, 8}, {8, 8}, {16, 1}, {20, 1}, {80, 1}}) {
    for (const AttentionSpan& span :
         {AttentionSpan{}, AttentionSpan{.chunk = 8192}, AttentionSpan{.window = 1000},
          AttentionSpan{.chunk = 700, .window = 20}}) {
      std::vector<AttentionSliceInfo> slices;
      int row = 0;
      while (slices.size() < 300 && row < 3500) {
        const int tokens = integer(0, 3) > 0 ? 1 : integer(0, 500);
        const int context = integer(0, 3) > 0 ? integer(0, 3000) : integer(0, 139000);
        slices.push_back({row, tokens, context, 0});
        row += tokens;
      }
      ExpectSound(Limits(num_heads, num_kv_heads), slices, span);
    }
  }
}

TEST(AttentionPlan, SplitsALongSequenceAtFixedPositions) {
  const AttentionPlan plan = PlanOf(Limits(64, 8), {{0, 1, 1100, 0}}, {.window = 600});
  ASSERT_EQ(plan.items.size(), 3U);
  EXPECT_EQ(plan.num_wide_items, 0);
  EXPECT_EQ(plan.items[0].begin, 501);
  EXPECT_EQ(plan.items[0].end, 512);
  EXPECT_EQ(plan.items[1].end, 1024);
  EXPECT_EQ(plan.items[2].end, 1101);
}

TEST(AttentionPlan, TilesReachAsFarAheadAsTheirRowsSee) {
  const std::vector<AttentionSliceInfo> texts = {{0, 200, 0, 0}, {200, 5, 0, 0}};
  AttentionLimits limits = Limits(8, 8);
  limits.max_partial_tokens = 0;
  AttentionPlan plan(limits);
  PlanAttention(limits, texts, {}, plan, kSeesAllBehind);
  ASSERT_EQ(plan.items.size(), 5U);
  EXPECT_EQ(plan.num_wide_items, 4);
  for (const AttentionItem& item : plan.items) {
    EXPECT_EQ(item.begin, 0);
    EXPECT_EQ(item.end, texts[static_cast<size_t>(item.slice)].num_tokens);
  }
  PlanAttention(limits, texts, {.window = 11}, plan, 10);
  ASSERT_EQ(plan.items.size(), 5U);
  for (const AttentionItem& item : plan.items) {
    const int tokens = texts[static_cast<size_t>(item.slice)].num_tokens;
    EXPECT_EQ(item.begin, std::max(item.first_token - 10, 0));
    EXPECT_EQ(item.end, std::min(item.first_token + item.num_tokens + 10, tokens));
  }
}

TEST(AttentionPlan, SplitsNothingWhereTilesAloneKeepADeviceBusy) {
  std::vector<AttentionSliceInfo> slices;
  for (int i = 0; i < 64; ++i) slices.push_back({i, 1, 1536, 0});  // 512 tiles with 8 heads
  EXPECT_EQ(PlanOf(Limits(64, 8), slices).items.size(), 64U);
  for (int i = 0; i < 64; i += 2) slices[static_cast<size_t>(i)].context = 1100;  // 3 ranges
  EXPECT_EQ(PlanOf(Limits(64, 8), slices).items.size(), 64U);
  slices.push_back({64, 1, 20000, 0});  // 40 ranges: all other blocks would wait for it
  EXPECT_EQ(PlanOf(Limits(64, 8), slices).items.size(), 64U + 40U);
  slices.resize(16);
  EXPECT_EQ(PlanOf(Limits(64, 8), slices).items.size(), 8U * 3U + 8U * 4U);
}

TEST(AttentionPlan, SplitsTheLongestAloneWhereRoomIsScarce) {
  std::vector<AttentionSliceInfo> slices;
  for (int i = 0; i < 300; ++i) slices.push_back({i, 1, 5000, 0});  // 10 ranges each
  slices.push_back({300, 1, 130000, 0});                            // 254 ranges
  const AttentionPlan plan = PlanOf(Limits(64, 8), slices);
  ASSERT_EQ(plan.merges.size(), 1U);
  EXPECT_EQ(plan.merges[0].num_partials, 254);
  EXPECT_EQ(plan.items.size(), 300U + 254U);
}

// At the same level, steps with the same number of sequences have equal counts for all contexts,
// and enough room.
TEST(AttentionPlan, PadsPlansOfSingleTokens) {
  std::mt19937 random(5);
  AttentionLimits limits = Limits(64, 8);
  for (const int64_t max_context : {400, 3000, 140000}) {
    limits.max_context = max_context;
    for (const int count : {1, 2, 7, 64, 300}) {
      const int levels = NumSplitLevels(limits, count);
      EXPECT_EQ(levels == 1, max_context <= kAttentionSplit);
      EXPECT_EQ(CountsOfLevel(limits, count, 0).items, count);
      EXPECT_EQ(CountsOfLevel(limits, count, 0).merges, 0);
      for (int round = 0; round < 20; ++round) {
        std::vector<AttentionSliceInfo> slices;
        for (int i = 0; i < count; ++i) {
          const int64_t most =
              i % 3 == round % 3 ? max_context : std::min<int64_t>(max_context, 600);
          slices.push_back({i, 1, static_cast<int32_t>(random() % static_cast<uint64_t>(most)), 0});
        }
        int fitting = 0;
        for (int level = 0; level < levels; ++level) {
          AttentionPlan plan(limits);
          const AttentionItem* items = plan.items.data();
          const AttentionMerge* merges = plan.merges.data();
          PlanAttention(limits, slices, {}, plan);
          const AttentionCounts counts = CountsOfLevel(limits, count, level);
          if (plan.num_partial_tokens > counts.partial_tokens) continue;
          ++fitting;
          const size_t own = plan.items.size();
          PadPlan(counts, plan);
          EXPECT_EQ(std::ssize(plan.items), counts.items);
          EXPECT_EQ(std::ssize(plan.merges), counts.merges);
          EXPECT_EQ(plan.items.data(), items) << "nothing was allocated";
          EXPECT_EQ(plan.merges.data(), merges);
          for (size_t k = 0; k < plan.items.size(); ++k)
            EXPECT_EQ(plan.items[k].slice < 0, k >= own);
        }
        EXPECT_GT(fitting, 0) << "the last level has room for all";
      }
    }
  }
  limits.max_context = 140000;
  EXPECT_EQ(CountsOfLevel(limits, 1, 1).partial_tokens, 32);
  EXPECT_EQ(CountsOfLevel(limits, 1, NumSplitLevels(limits, 1) - 1).partial_tokens, 274);
  EXPECT_EQ(CountsOfLevel(limits, 8, NumSplitLevels(limits, 8) - 1).partial_tokens, 2048);
}

TEST(AttentionPlan, NeedsNoRoomForShortContexts) {
  AttentionLimits limits = Limits(64, 8);
  limits.max_context = kAttentionSplit;
  EXPECT_EQ(AttentionPartialsBytes(limits), 0);
  EXPECT_EQ(MaxAttentionMerges(limits), 0);
  limits.max_context = 140000;
  EXPECT_EQ(AttentionPartialsBytes(limits), int64_t{2048} * 64 * 132 * 4);
}

}  // namespace
}  // namespace sluice::device
