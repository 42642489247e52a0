#include "kernels/split_rows.h"

#include "base/check.h"
#include "kernels/row_parts.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kGrain = 4096;

}  // namespace

void SplitRows(ThreadPool& pool, const Activations& x, BFloat16* out) {
  CHECK(x.type == ElementType::kF32, "rows to split are F32, not {}", ElementTypeName(x.type));
  ForEachRowPart(pool, x.rows, x.cols, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
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
  ForEachRowPart(pool, rows, cols, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const float* high = pairs + 2 * row * cols;
    const float* low = high + cols;
    float* to = y + row * y_stride;
    for (int64_t n = begin; n < end; ++n) to[n] = high[n] + low[n];
    if (bias == nullptr) return;
    for (int64_t n = begin; n < end; ++n) to[n] += bias[n];
  });
}

}  // namespace sluice::kernels
