// select positions: chooses the earlier positions to which a row attends, by the scores of an
// indexer (sparse attention of DeepSeek V3.2).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/attention.h"

namespace sluice::kernels {

// Queries of an indexer. The score of position t is the sum over heads of weights[head] * max(0,
// q[head] . key[t]). Factors common to all scores do not change the choice and are left out.
struct IndexQueries {
  const float* q = nullptr;        // F32, contiguous [rows, num_heads, layout.side_dim]
  const float* weights = nullptr;  // F32, contiguous [rows, num_heads]
  int num_heads = 0;
  // Number of tokens that a key stands for; a row that sees n positions sees n / rate keys, which
  // the functions below call positions.
  int rate = 1;
};

// Returns the bytes of scratch memory for sequences of at most `max_context` tokens, on
// `num_threads` threads.
int64_t SelectScratchBytes(const KvLayout& layout, int64_t max_context, int num_threads);

// For each row of the slices that sees more than `top_k` positions: chosen[row, top_k] receives the
// positions with the largest scores, ascending; among equal scores the earlier position wins. NaN
// counts as minus infinity. Other rows of `chosen` are not written. The keys are those that
// AppendSide wrote for the same slices or, with a rate, for their complete groups of tokens. A
// row's choice depends only on its own position and keys.
void SelectPositions(ThreadPool& pool, const KvCacheView& cache,
                     std::span<const AttentionSlice> slices, const IndexQueries& queries, int top_k,
                     int32_t* chosen, std::span<std::byte> scratch);

}  // namespace sluice::kernels
