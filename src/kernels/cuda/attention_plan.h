// Divides a step's attention among thread blocks: which tile of query rows is computed against
// which positions, and which partial results are combined (AttentionItem and AttentionMerge of
// device_kernels.h; attention_tiles.h).
//
// Slices of few tokens become narrow tiles. Their positions are split if that keeps the whole
// device busy, for example with a few long sequences. Other slices become wide tiles. Neither
// choice changes the results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::device {

// Upper bounds of a model's steps.
struct AttentionLimits {
  int64_t max_rows = 0;
  int64_t max_slices = 0;
  int64_t max_context = 0;  // maximum number of positions of a slice, including new tokens
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  // Maximum number of partial results, counted in tokens. If a step would have more, only its
  // longest sequences are split; such a step has many tiles anyway.
  int64_t max_partial_tokens = 2048;
};

// Upper bounds for every step within the limits.
int64_t MaxAttentionItems(const AttentionLimits& limits);
int64_t MaxAttentionMerges(const AttentionLimits& limits);
int64_t AttentionPartialsBytes(const AttentionLimits& limits);

// These functions are for steps within the limits with one token for each of `slices` sequences.
// Their launches must not depend on the sequences' lengths. PadPlan fills a plan with empty items
// and merges up to the counts of its level. At level 0 no tile is split; the last level has room
// for all steps. The levels in between have room for fewer partial results, because empty items and
// merges take time.
struct AttentionCounts {
  int64_t items = 0, merges = 0;
  int64_t partial_tokens = 0;
};
int NumSplitLevels(const AttentionLimits& limits, int64_t slices);
// REQUIRES: level < NumSplitLevels.
AttentionCounts CountsOfLevel(const AttentionLimits& limits, int64_t slices, int level);

// The plan of a step. It reserves memory for any step within the limits, so PlanAttention allocates
// nothing.
struct AttentionPlan {
  AttentionPlan() = default;
  explicit AttentionPlan(const AttentionLimits& limits);

  std::vector<AttentionItem> items;  // items of wide tiles first
  int num_wide_items = 0;
  std::vector<AttentionMerge> merges;
  int64_t num_partial_tokens = 0;
};

// Replaces the contents of `plan`, in time proportional to the number of items, and of rows if
// there is `last_seen`. `ahead`, `last_seen`: as in AttentionArgs. REQUIRES: a step within the
// limits that `plan` was made for; head_dim a multiple of 8 from 16 to 256, or 512.
void PlanAttention(const AttentionLimits& limits, std::span<const AttentionSliceInfo> slices,
                   const AttentionSpan& span, AttentionPlan& plan, int32_t ahead = 0,
                   std::span<const int32_t> last_seen = {});
// REQUIRES: the plan does not exceed `counts`.
void PadPlan(const AttentionCounts& counts, AttentionPlan& plan);

}  // namespace sluice::device
