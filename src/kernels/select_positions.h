// select positions: which earlier positions a row attends to, where an indexer chooses them (sparse
// attention of DeepSeek V3.2).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/attention.h"

namespace sluice::kernels {

// What scores the keys of an indexer: of a position t, the sum over heads of weights[head] * max(0,
// q[head] . key[t]). Factors that all scores have change nothing and are left out.
struct IndexQueries {
  const float* q = nullptr;        // F32, dense [rows, num_heads, layout.side_dim]
  const float* weights = nullptr;  // F32, dense [rows, num_heads]
  int num_heads = 0;
};

// Bytes of scratch memory for sequences of at most `max_context` tokens, on so many threads.
int64_t SelectScratchBytes(const KvLayout& layout, int64_t max_context, int num_threads);

// For each row of the slices that sees more than `top_k` positions, those of the largest scores:
// chosen[row, top_k], ascending; of equal scores the earlier position. NaN is smaller than every
// number. Rows that see no more are not written. The keys are those of AppendSide, which must have
// been called for the same slices. A row's choice depends on its own position and keys alone.
void SelectPositions(ThreadPool& pool, const KvCacheView& cache,
                     std::span<const AttentionSlice> slices, const IndexQueries& queries, int top_k,
                     int32_t* chosen, std::span<std::byte> scratch);

}  // namespace sluice::kernels
