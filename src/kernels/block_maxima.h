// Maxima of blocks of a row. A search for large numbers can skip blocks by their maxima, which are
// computed while the block is still in the cache of the thread that wrote it.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace sluice::kernels {

// Columns of a block; the last block of a row may have fewer. Blocks of 64 are slower: with many
// rows their maxima no longer fit the caches, and greedy sampling waits for them.
constexpr int64_t kMaximaBlock = 256;

constexpr int64_t NumMaxima(int64_t columns) {
  return (columns + kMaximaBlock - 1) / kMaximaBlock;
}

// Maxima of the blocks of some rows: [rows, NumMaxima(columns)], rows `stride` elements apart; NaN
// if the block contains a NaN. data null: not requested. Ownership: a view.
struct RowMaxima {
  float* data = nullptr;
  int64_t stride = 0;

  // The maxima from row `row` and block `block` on.
  RowMaxima From(int64_t row, int64_t block) const {
    return data == nullptr ? *this : RowMaxima{data + row * stride + block, stride};
  }
};

// Maxima of x [rows, columns], rows `x_stride` elements apart. Computed by the calling thread, or
// by the threads of `pool`.
void FindMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);
void FindMaxima(ThreadPool& pool, const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);

// ArgMax (sampling.h) of a row, using its block maxima. REQUIRES: no maximum is NaN.
int32_t ArgMaxByBlocks(std::span<const float> row, std::span<const float> maxima);

}  // namespace sluice::kernels
