#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/float_result.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void LayerNormRow(float* x, const float* weight, const float* bias, float eps, int64_t cols,
                  void* y, bool y_bf16) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < cols; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(cols);
  for (int64_t i = 0; i < cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double variance = squares / static_cast<double>(cols);
  const auto factor = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(eps)));
  for (int64_t i = 0; i < cols; ++i) {
    x[i] = (x[i] - static_cast<float>(mean)) * factor * weight[i] + bias[i];
    if (y != nullptr) StoreResult(y, i, x[i], y_bf16);
  }
}

}  // namespace reference

SLUICE_LANE_SUM_KERNEL(LayerNormRow);

void LayerNorm(ThreadPool& pool, float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t cols, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kLayerNormRow(x + row * cols, weight, bias, eps, cols,
                    y == nullptr ? nullptr : ResultAt(y, row * cols, bf16), bf16);
    }
  });
}

}  // namespace sluice::kernels
