// The largest numbers of blocks of a row: they tell where a search for large numbers may skip, and
// are found while the blocks are in the cache of the thread that computed them.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace sluice::kernels {

// Columns of a block; the last block of a row may have fewer. With blocks of 64 greedy sampling of
// many rows waits for their maxima, which have left the caches by then.
constexpr int64_t kMaximaBlock = 256;

constexpr int64_t NumMaxima(int64_t columns) {
  return (columns + kMaximaBlock - 1) / kMaximaBlock;
}

// Maxima of the blocks of some rows: [rows, NumMaxima(columns)], `stride` elements from a row to
// the next; NaN where the block holds a NaN. Without data: none are wanted. Ownership: a view.
struct RowMaxima {
  float* data = nullptr;
  int64_t stride = 0;

  // Those from a row and a block on.
  RowMaxima From(int64_t row, int64_t block) const {
    return data == nullptr ? *this : RowMaxima{data + row * stride + block, stride};
  }
};

// Maxima of x [rows, columns], whose rows are `x_stride` elements apart. By one thread, and by all.
void FindMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);
void FindMaxima(ThreadPool& pool, const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima);

// ArgMax (sampling.h) of a row with these maxima, none of which is NaN.
int32_t ArgMaxByBlocks(std::span<const float> row, std::span<const float> maxima);

}  // namespace sluice::kernels
