// select blocks: chooses the blocks of earlier positions to which a row attends, by the scores of
// an indexer (sparse attention of MiniMax M3).
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/attention.h"

namespace sluice::kernels {

// Queries of an indexer. Block b of a sequence is its positions [b * block, (b + 1) * block). A
// head's score of a block is the largest q[head] . key[t] of the positions t of the block that the
// row sees.
struct BlockQueries {
  const float* q = nullptr;  // F32, contiguous [rows, num_heads, layout.side_dim]
  int num_heads = 0;
  int block = 0;  // positions per block, a multiple of kBlockUnit
  // The row's own block and those before it, `local` in all, are chosen whatever their scores.
  // From 1 to top_k.
  int local = 1;
};

// Returns the bytes of scratch memory for sequences of at most `max_context` tokens, on
// `num_threads` threads.
int64_t SelectBlocksScratchBytes(const KvLayout& layout, int num_heads, int block,
                                 int64_t max_context, int num_threads);

// For each row of the slices that sees more than `top_k` blocks: chosen[row, head, top_k] receives
// the numbers of the blocks with the largest scores, ascending; among equal scores the earlier
// block wins. Scores that are NaN count as minus infinity. Other rows of `chosen` are not written.
// The keys are those that AppendSide wrote for the same slices. A row's choice depends only on its
// own position and keys. Source: transformers' MiniMaxM3VLIndexer.
void SelectBlocks(ThreadPool& pool, const KvCacheView& cache,
                  std::span<const AttentionSlice> slices, const BlockQueries& queries, int top_k,
                  int32_t* chosen, std::span<std::byte> scratch);

}  // namespace sluice::kernels
