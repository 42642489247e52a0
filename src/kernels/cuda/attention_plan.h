// How a step's attention is shared out among blocks of threads: which tile of query rows meets
// which positions, and whose partial results are combined (AttentionItem and AttentionMerge of
// device_kernels.h; attention_tiles.h).
//
// Slices of few tokens become narrow tiles, whose positions are split where that keeps the whole
// device busy, as of a few long sequences; others become wide ones. Neither choice shows in the
// results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// What a model's steps can ask for.
struct AttentionLimits {
  int64_t max_rows = 0;
  int64_t max_slices = 0;
  int64_t max_context = 0;  // positions of a slice, its new tokens included
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // Partial results that there is room for, counted in tokens. Where a step would have more, only
  // the longest of its sequences are split; by then the tiles are many.
  int64_t max_partial_tokens = 2048;
};

// Upper bounds for every step within the limits.
int64_t MaxAttentionItems(const AttentionLimits& limits);
int64_t MaxAttentionMerges(const AttentionLimits& limits);
int64_t AttentionPartialsBytes(const AttentionLimits& limits);

// For steps of one token for each of `slices` sequences, within the limits, whose launches are not
// to depend on how long those are: PadPlan fills a plan up to what its level has, with items and
// merges that do nothing. Level 0 is of steps none of whose tiles is split, the last one of all
// steps; those between have room for fewer partial results, as what does nothing takes time, too.
struct AttentionCounts {
  int64_t items = 0, merges = 0;
  int64_t partial_tokens = 0;
};
int NumSplitLevels(const AttentionLimits& limits, int64_t slices);
// REQUIRES: level < NumSplitLevels.
AttentionCounts CountsOfLevel(const AttentionLimits& limits, int64_t slices, int level);

// Room for the plan of any step within the limits: PlanAttention allocates nothing.
struct AttentionPlan {
  AttentionPlan() = default;
  explicit AttentionPlan(const AttentionLimits& limits);

  std::vector<AttentionItem> items;  // of wide tiles first
  int num_wide_items = 0;
  std::vector<AttentionMerge> merges;
  int64_t num_partial_tokens = 0;
};

// Replaces what `plan` holds. Takes time in proportion to the number of items. REQUIRES: a step
// within the limits that `plan` was made for; head_dim a multiple of 8 from 32 to 256, or 512.
// `ahead`: as of AttentionArgs.
void PlanAttention(const AttentionLimits& limits, std::span<const AttentionSliceInfo> slices,
                   const AttentionSpan& span, AttentionPlan& plan, int32_t ahead = 0);
// REQUIRES: the plan has no more than that.
void PadPlan(const AttentionCounts& counts, AttentionPlan& plan);

}  // namespace sluice::device
