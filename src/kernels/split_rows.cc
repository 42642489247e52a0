#include "kernels/split_rows.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::kernels {
namespace {

// Calls part(row, begin, end) over all elements of [rows, cols], so that one wide row spreads over
// the threads too.
template <typename Part>
void ForEachPart(ThreadPool& pool, int64_t rows, int64_t cols, Part&& part) {
  constexpr int64_t kGrain = 4096;
  pool.ParallelFor(rows * cols, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / cols;
      const int64_t col = begin % cols;
      const int64_t count = std::min(end - begin, cols - col);
      part(row, col, col + count);
      begin += count;
    }
  });
}

}  // namespace

void SplitRows(ThreadPool& pool, const Activations& x, BFloat16* out) {
  CHECK(x.type == ElementType::kF32, "rows to split are F32, not {}", ElementTypeName(x.type));
  ForEachPart(pool, x.rows, x.cols, [&](int64_t row, int64_t begin, int64_t end) {
    const float* from = x.f32() + row * x.stride;
    BFloat16* high = out + 2 * row * x.cols;
    BFloat16* low = high + x.cols;
    for (int64_t k = begin; k < end; ++k) {
      high[k] = ToBFloat16(from[k]);
      low[k] = ToBFloat16(from[k] - ToFloat(high[k]));
    }
  });
}

void AddPairs(ThreadPool& pool, const float* pairs, const float* bias, int64_t rows, int64_t cols,
              float* y, int64_t y_stride) {
  ForEachPart(pool, rows, cols, [&](int64_t row, int64_t begin, int64_t end) {
    const float* high = pairs + 2 * row * cols;
    const float* low = high + cols;
    float* to = y + row * y_stride;
    for (int64_t n = begin; n < end; ++n) to[n] = high[n] + low[n];
    if (bias == nullptr) return;
    for (int64_t n = begin; n < end; ++n) to[n] += bias[n];
  });
}

}  // namespace sluice::kernels
