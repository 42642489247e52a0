#include "kernels/cuda/attention_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/integer.h"
#include "kernels/cuda/attention_tiles.h"

namespace sluice::device {
namespace {

// The number of tokens per tile, for a model.
struct TileTokens {
  int wide, narrow;
  int most_in_narrow;  // a slice with more tokens has wide tiles
};

TileTokens TileTokensOf(const AttentionLimits& limits) {
  const int heads = HeadTilesOf(limits.num_heads, limits.num_kv_heads).heads;
  const int narrow = kNarrowTileRows / heads;
  return {kWideTileRows / heads, narrow, 2 * narrow};
}

int64_t MaxNarrowTiles(const AttentionLimits& limits) {
  return std::min(limits.max_rows, 2 * limits.max_slices);
}

int64_t MaxPartialTokens(const AttentionLimits& limits) {
  const int64_t ranges = CeilDiv(limits.max_context, kAttentionSplit);
  if (ranges < 2) return 0;
  const int64_t tokens =
      std::min(limits.max_rows, limits.max_slices * TileTokensOf(limits).most_in_narrow);
  return std::min(limits.max_partial_tokens, tokens * ranges);
}

AttentionLimits OfSingleTokens(AttentionLimits limits, int64_t slices) {
  limits.max_rows = limits.max_slices = slices;
  return limits;
}

// Maximum number of partial results per level. The last level of a model has room for the model's
// maximum instead.
constexpr std::array<int64_t, 7> kPartialsOfLevels = {0, 32, 128, 512, 1024, 2048, 4096};

struct PlannedTile {
  int32_t first_token, num_tokens;
  int32_t begin, end;  // positions that its rows see

  int32_t NumRanges() const { return (end - 1) / kAttentionSplit - begin / kAttentionSplit + 1; }
};

// The positions to which rows attend: those up to their own position that `span` allows, and
// `ahead` positions after it; or those up to last_seen[row].
struct SeenPositions {
  AttentionSpan span;
  int32_t ahead;
  std::span<const int32_t> last_seen;

  // The end of the positions that `count` tokens of a slice see.
  int32_t End(const AttentionSliceInfo& slice, int32_t first, int32_t count) const {
    if (last_seen.empty()) {
      const int32_t left = slice.num_tokens - first - count;
      return slice.context + first + count + std::min(ahead, left);
    }
    const auto rows =
        last_seen.subspan(static_cast<size_t>(slice.first_row + first), static_cast<size_t>(count));
    return *std::max_element(rows.begin(), rows.end()) + 1;
  }
};

// Calls visit(index of slice, tile) for the tiles of all narrow slices, or of all other slices.
template <typename Visit>
void VisitTiles(const TileTokens& tokens, bool narrow, std::span<const AttentionSliceInfo> slices,
                const SeenPositions& seen, const Visit& visit) {
  const int32_t tile_tokens = narrow ? tokens.narrow : tokens.wide;
  for (size_t i = 0; i < slices.size(); ++i) {
    const AttentionSliceInfo& slice = slices[i];
    if ((slice.num_tokens <= tokens.most_in_narrow) != narrow) continue;
    for (int32_t first = 0; first < slice.num_tokens; first += tile_tokens) {
      const int32_t count = std::min(tile_tokens, slice.num_tokens - first);
      visit(static_cast<int32_t>(i),
            PlannedTile{first, count, seen.span.FirstSeen(slice.context + first),
                        seen.End(slice, first, count)});
    }
  }
}

// Number of blocks that keep a large device busy: four for each of 132 multiprocessors.
constexpr int64_t kBusyBlocks = 512;

// Returns how many ranges a tile must have to be split into one item per range. A split costs
// writing, reading and combining partial results. So only tiles that would determine the kernel's
// duration are split. These have more ranges than each of kBusyBlocks blocks would process if all
// ranges were spread evenly. The threshold is higher if the partial results of these tiles would
// exceed MaxPartialTokens.
int32_t LeastRangesToSplit(const AttentionLimits& limits, const TileTokens& tokens,
                           std::span<const AttentionSliceInfo> slices, const SeenPositions& seen) {
  int64_t all_ranges = 0;
  // Total number of ranges of the tiles with [2^i, 2^(i + 1)) ranges.
  std::array<int64_t, 32> partials{};
  VisitTiles(tokens, true, slices, seen, [&](int32_t, const PlannedTile& tile) {
    const auto ranges = static_cast<uint32_t>(tile.NumRanges());
    all_ranges += ranges;
    partials[static_cast<size_t>(std::bit_width(ranges)) - 1] += int64_t{ranges} * tile.num_tokens;
  });
  const int64_t head_tiles =
      int64_t{limits.num_kv_heads} * HeadTilesOf(limits.num_heads, limits.num_kv_heads).per_group;
  const int64_t fair = (all_ranges * head_tiles + kBusyBlocks / 2) / kBusyBlocks;
  const int64_t room = MaxPartialTokens(limits);
  int64_t total = 0;
  size_t i = partials.size() - 1;
  for (; i > 0; --i) {
    total += partials[i];
    if (total > room) break;
  }
  if (i + 1 >= 31) return INT32_MAX;
  return static_cast<int32_t>(
      std::max(int64_t{1} << (i + 1), std::min(fair + 1, int64_t{INT32_MAX})));
}

}  // namespace

int64_t MaxAttentionItems(const AttentionLimits& limits) {
  const int64_t wide = limits.max_rows / TileTokensOf(limits).wide + limits.max_slices;
  return wide + MaxNarrowTiles(limits) + MaxPartialTokens(limits);
}

int64_t MaxAttentionMerges(const AttentionLimits& limits) {
  return std::min(MaxNarrowTiles(limits), MaxPartialTokens(limits) / 2);
}

int64_t AttentionPartialsBytes(const AttentionLimits& limits) {
  return MaxPartialTokens(limits) * limits.num_heads * (limits.head_dim + kPartialExtraNumbers) *
         static_cast<int64_t>(sizeof(float));
}

int NumSplitLevels(const AttentionLimits& limits, int64_t slices) {
  const int64_t most = MaxPartialTokens(OfSingleTokens(limits, slices));
  int level = 0;
  while (level + 1 < std::ssize(kPartialsOfLevels) && kPartialsOfLevels[level] < most) ++level;
  return level + 1;
}

AttentionCounts CountsOfLevel(const AttentionLimits& limits, int64_t slices, int level) {
  const AttentionLimits own = OfSingleTokens(limits, slices);
  const bool is_last = level + 1 == NumSplitLevels(limits, slices);
  const int64_t partials = is_last ? MaxPartialTokens(own) : kPartialsOfLevels[level];
  return {.items = slices + partials,
          .merges = std::min(MaxAttentionMerges(own), partials / 2),
          .partial_tokens = partials};
}

void PadPlan(const AttentionCounts& counts, AttentionPlan& plan) {
  CHECK_LE(plan.num_partial_tokens, counts.partial_tokens);
  CHECK_LE(static_cast<int64_t>(plan.items.size()), counts.items);
  CHECK_LE(static_cast<int64_t>(plan.merges.size()), counts.merges);
  AttentionItem no_item = {};
  no_item.slice = -1;
  plan.items.resize(static_cast<size_t>(counts.items), no_item);
  plan.merges.resize(static_cast<size_t>(counts.merges), AttentionMerge());
}

AttentionPlan::AttentionPlan(const AttentionLimits& limits) {
  items.reserve(static_cast<size_t>(MaxAttentionItems(limits)));
  merges.reserve(static_cast<size_t>(MaxAttentionMerges(limits)));
}

void PlanAttention(const AttentionLimits& limits, std::span<const AttentionSliceInfo> slices,
                   const AttentionSpan& span, AttentionPlan& plan, int32_t ahead,
                   std::span<const int32_t> last_seen) {
  const SeenPositions seen = {span, ahead, last_seen};
  const TileTokens tokens = TileTokensOf(limits);
  plan.items.clear();
  plan.merges.clear();
  plan.num_partial_tokens = 0;
  VisitTiles(tokens, false, slices, seen, [&](int32_t slice, const PlannedTile& tile) {
    plan.items.push_back(
        {slice, tile.first_token, tile.num_tokens, tile.begin, tile.end, /*partial=*/-1});
  });
  // The longest items come first, because a short item at the end leaves less of the device idle.
  // The order is total: no two items are equal.
  std::sort(plan.items.begin(), plan.items.end(),
            [](const AttentionItem& a, const AttentionItem& b) {
              const int32_t length_a = a.end - a.begin, length_b = b.end - b.begin;
              if (length_a != length_b) return length_a > length_b;
              return std::pair(a.slice, a.first_token) < std::pair(b.slice, b.first_token);
            });
  plan.num_wide_items = static_cast<int>(plan.items.size());
  const int32_t least_ranges = LeastRangesToSplit(limits, tokens, slices, seen);
  VisitTiles(tokens, true, slices, seen, [&](int32_t slice, const PlannedTile& tile) {
    AttentionItem item{slice,      tile.first_token, tile.num_tokens,
                       tile.begin, tile.end,         /*partial=*/-1};
    const int32_t num_ranges = tile.NumRanges();
    if (num_ranges < least_ranges) {
      plan.items.push_back(item);
      return;
    }
    plan.merges.push_back({slices[static_cast<size_t>(slice)].first_row + tile.first_token,
                           tile.num_tokens, static_cast<int32_t>(plan.num_partial_tokens),
                           num_ranges});
    for (item.begin = tile.begin; item.begin < tile.end; item.begin = item.end) {
      item.end = std::min(tile.end, (item.begin / kAttentionSplit + 1) * kAttentionSplit);
      item.partial = static_cast<int32_t>(plan.num_partial_tokens);
      plan.items.push_back(item);
      plan.num_partial_tokens += tile.num_tokens;
    }
  });
  CHECK(static_cast<int64_t>(plan.items.size()) <= MaxAttentionItems(limits) &&
            static_cast<int64_t>(plan.merges.size()) <= MaxAttentionMerges(limits) &&
            plan.num_partial_tokens <= MaxPartialTokens(limits),
        "a step beyond the limits of its attention");
}

}  // namespace sluice::device
