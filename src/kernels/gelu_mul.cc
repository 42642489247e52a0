#include "kernels/gelu_mul.h"

#include <algorithm>
#include <cmath>

#include "kernels/float_result.h"
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
  // Cut over all elements, so that one wide row spreads over the threads too.
  constexpr int64_t kGrain = 1024;
  pool.ParallelFor(rows * width, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / width;
      const int64_t col = begin % width;
      const int64_t count = std::min(end - begin, width - col);
      const float* gate = x + row * 2 * width + col;
      kGeluMulRow(gate, gate + width, count, ResultAt(y, begin, bf16), bf16);
      begin += count;
    }
  });
}

}  // namespace sluice::kernels
