// Computes maxima of blocks of a row. A search for large elements can skip blocks by their maxima.
// They are computed while the block is still in the cache of the thread that wrote it.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace sluice::kernels {

// Number of columns per block; the last block of a row may have fewer. Blocks of 64 are slower:
// with many rows, their maxima exceed the caches and slow down greedy sampling.
constexpr int64_t kMaximaBlock = 256;

constexpr int64_t NumMaxima(int64_t columns) {
  return (columns + kMaximaBlock - 1) / kMaximaBlock;
}

// Maxima of the blocks of some rows: [rows, NumMaxima(columns)], rows `stride` elements apart; NaN
// if the block contains a NaN. data null: not requested. Ownership: a view.
struct RowMaxima {
  float* data = nullptr;
  int64_t stride = 0;

  // Returns the maxima from row `row` and block `block` on.
  RowMaxima From(int64_t row, int64_t block) const {
    return data == nullptr ? *this : RowMaxima{data + row * stride + block, stride};
  }
};

// Finds the maxima of x [rows, columns], rows `x_stride` elements apart, on the calling thread or
// on the threads of `pool`.
void FindMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);
void FindMaxima(ThreadPool& pool, const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);

// Returns the same as ArgMax (sampling.h) for a row, using its block maxima. REQUIRES: no maximum
// is NaN.
int32_t ArgMaxByBlocks(std::span<const float> row, std::span<const float> maxima);

}  // namespace sluice::kernels
