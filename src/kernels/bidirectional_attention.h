// Attention of encoders: every token sees all tokens of its sequence, or those near it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"

namespace sluice::kernels {

// As Attention, over all positions of a slice, those after a row's own too; with `reach`, those
// that are no farther than that from the row's own. Scratch: as for
// Attention. `bf16_products`: AttentionScores::bf16_products. REQUIRES: every slice is a whole
// sequence (context 0); AppendKv has been called for them.
void BidirectionalAttention(ThreadPool& pool, const KvCacheView& cache,
                            std::span<const AttentionSlice> slices, int32_t reach, const float* q,
                            int64_t q_stride, int num_heads, float scale, void* out,
                            ElementType out_type, std::span<std::byte> scratch,
                            bool bf16_products = false);

}  // namespace sluice::kernels
