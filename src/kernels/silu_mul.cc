#include "kernels/silu_mul.h"

#include <cmath>

#include "kernels/float_result.h"
#include "kernels/row_parts.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void SiluMulRow(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i)
    StoreResult(y, i, gate[i] / (1.0f + std::exp(-gate[i])) * up[i], y_bf16);
}

void SigmoidMulRow(const float* gate, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) {
    const float value =
        y_bf16 ? ToFloat(static_cast<const BFloat16*>(y)[i]) : static_cast<const float*>(y)[i];
    StoreResult(y, i, value / (1.0f + std::exp(-gate[i])), y_bf16);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(SiluMulRow);
SLUICE_VECTOR_KERNEL(SigmoidMulRow);

void SiluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const float* gate = x + row * 2 * width + begin;
    kSiluMulRow(gate, gate + width, end - begin, ResultAt(y, row * width + begin, bf16), bf16);
  });
}

void SiluGate(ThreadPool& pool, const float* gate, const float* x, int64_t stride, int64_t rows,
              int64_t width, void* y, int64_t y_stride, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const int64_t at = row * stride + begin;
    kSiluMulRow(gate + at, x + at, end - begin, ResultAt(y, row * y_stride + begin, bf16), bf16);
  });
}

void SigmoidGate(ThreadPool& pool, const float* gate, int64_t stride, int64_t rows, int64_t width,
                 void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    kSigmoidMulRow(gate + row * stride + begin, end - begin, ResultAt(y, row * width + begin, bf16),
                   bf16);
  });
}

}  // namespace sluice::kernels
