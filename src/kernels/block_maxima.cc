#include "kernels/block_maxima.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/sampling.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

// Implements FindMaxima. The vector versions also hard-code kMaximaBlock.
void BlockMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns, float* maxima,
                 int64_t maxima_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kMaximaBlock) {
      float largest = -std::numeric_limits<float>::infinity();
      for (int64_t i = begin; i < std::min(begin + kMaximaBlock, columns); ++i) {
        const float value = x[row * x_stride + i];
        if (std::isnan(value) || value > largest) largest = value;
        if (std::isnan(largest)) break;
      }
      maxima[row * maxima_stride + begin / kMaximaBlock] = largest;
    }
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(BlockMaxima);

void FindMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima) {
  kBlockMaxima(x, x_stride, rows, columns, maxima.data, maxima.stride);
}

void FindMaxima(ThreadPool& pool, const float* x, int64_t x_stride, int64_t rows, int64_t columns,
                const RowMaxima& maxima) {
  pool.ParallelFor(rows, /*grain=*/1, [&](int64_t begin, int64_t end) {
    FindMaxima(x + begin * x_stride, x_stride, end - begin, columns, maxima.From(begin, 0));
  });
}

int32_t ArgMaxByBlocks(std::span<const float> row, std::span<const float> maxima) {
  CHECK_EQ(std::ssize(maxima), NumMaxima(std::ssize(row)));
  const auto begin = static_cast<size_t>(ArgMax(maxima)) * kMaximaBlock;
  const std::span<const float> block =
      row.subspan(begin, std::min<size_t>(kMaximaBlock, row.size() - begin));
  return static_cast<int32_t>(begin) + ArgMax(block);
}

}  // namespace sluice::kernels
