#include "kernels/rms_norm.h"

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

bool IsBf16(ElementType type) {
  CHECK(type == ElementType::kF32 || type == ElementType::kBF16,
        "the norm's result is F32 or BF16, not {}", ElementTypeName(type));
  return type == ElementType::kBF16;
}

std::byte* RowOf(void* y, int64_t row, int64_t cols, bool bf16) {
  return static_cast<std::byte*>(y) + row * cols * (bf16 ? 2 : 4);
}

}  // namespace

void RmsNorm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, float eps,
             int64_t rows, int64_t cols, void* y, ElementType y_type) {
  const bool bf16 = IsBf16(y_type);
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels.rms_norm_row(x + row * x_stride, weight, eps, cols, RowOf(y, row, cols, bf16), bf16);
    }
  });
}

void AddRmsNorm(ThreadPool& pool, float* residual, const float* delta, const float* weight,
                float eps, int64_t rows, int64_t cols, void* y, ElementType y_type) {
  const bool bf16 = IsBf16(y_type);
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels.add(residual + row * cols, delta + row * cols, cols);
      kernels.rms_norm_row(residual + row * cols, weight, eps, cols, RowOf(y, row, cols, bf16),
                           bf16);
    }
  });
}

void ResidualAdd(ThreadPool& pool, float* residual, const float* delta, int64_t count) {
  constexpr int64_t kGrain = 4096;
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    kernels.add(residual + begin, delta + begin, end - begin);
  });
}

}  // namespace sluice::kernels
