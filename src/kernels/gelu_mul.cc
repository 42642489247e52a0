#include "kernels/gelu_mul.h"

#include <cmath>

#include "kernels/float_result.h"
#include "kernels/row_parts.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void GeluMulRow(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) {
    const float z = gate[i];
    const float exponent = z * (-1.5957691216f - 0.0713548163f * (z * z));
    StoreResult(y, i, z / (1.0f + std::exp(exponent)) * up[i], y_bf16);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(GeluMulRow);

void GeluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    const float* gate = x + row * 2 * width + begin;
    kGeluMulRow(gate, gate + width, end - begin, ResultAt(y, row * width + begin, bf16), bf16);
  });
}

}  // namespace sluice::kernels
