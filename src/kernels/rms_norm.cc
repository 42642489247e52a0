#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/float_result.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, void* y,
                bool y_bf16) {
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float mean = static_cast<float>(squares / static_cast<double>(cols));
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < cols; ++i) StoreResult(y, i, weight[i] * (x[i] * factor), y_bf16);
}

void AddRow(float* sum, const float* delta, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += delta[i];
}

}  // namespace reference

SLUICE_LANE_SUM_KERNEL(RmsNormRow);
SLUICE_VECTOR_KERNEL(AddRow);

void RmsNorm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, float eps,
             int64_t rows, int64_t cols, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kRmsNormRow(x + row * x_stride, weight, eps, cols, ResultAt(y, row * cols, bf16), bf16);
    }
  });
}

void AddRmsNorm(ThreadPool& pool, float* residual, const float* delta, const float* weight,
                float eps, int64_t rows, int64_t cols, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kAddRow(residual + row * cols, delta + row * cols, cols);
      kRmsNormRow(residual + row * cols, weight, eps, cols, ResultAt(y, row * cols, bf16), bf16);
    }
  });
}

void HeadRmsNorm(ThreadPool& pool, float* x, int64_t stride, const float* weight, float eps,
                 int64_t rows, int num_heads, int head_dim) {
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int head = 0; head < num_heads; ++head) {
        // Works in place, because the mean is computed before the first element is written.
        float* values = x + row * stride + int64_t{head} * head_dim;
        kRmsNormRow(values, weight, eps, head_dim, values, /*y_bf16=*/false);
      }
    }
  });
}

void GroupRmsNorm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  float eps, int64_t rows, int64_t groups, int64_t width, void* y, int64_t y_stride,
                  ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t first = group * width;
        kRmsNormRow(x + row * x_stride + first, weight + first, eps, width,
                    ResultAt(y, row * y_stride + first, bf16), bf16);
      }
    }
  });
}

void ResidualAdd(ThreadPool& pool, float* residual, const float* delta, int64_t count) {
  constexpr int64_t kGrain = 4096;
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    kAddRow(residual + begin, delta + begin, end - begin);
  });
}

}  // namespace sluice::kernels
