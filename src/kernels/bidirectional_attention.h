// Attention of encoders: every token attends to all tokens of its sequence, or to those near it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"

namespace sluice::kernels {

// Computes attention over all positions of a slice, including those after a row's own. `reach`: if
// > 0, only over positions at most that far from the row's own. `bf16_products`: like
// AttentionScores::bf16_products. Needs scratch memory like Attention. REQUIRES: every slice is a
// whole sequence (context 0); AppendKv has been called for it.
void BidirectionalAttention(ThreadPool& pool, const KvCacheView& cache,
                            std::span<const AttentionSlice> slices, int32_t reach, const float* q,
                            int64_t q_stride, int num_heads, float scale, void* out,
                            ElementType out_type, std::span<std::byte> scratch,
                            bool bf16_products = false);

}  // namespace sluice::kernels
