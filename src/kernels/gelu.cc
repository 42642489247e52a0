#include "kernels/gelu.h"

#include <cmath>

#include "kernels/float_result.h"
#include "kernels/row_parts.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void GeluRow(const float* x, int64_t count, void* y, bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) {
    const float half = 0.5f * x[i];
    StoreResult(y, i, half + half * std::erf(x[i] * 0.70710678f), y_bf16);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(GeluRow);

void Gelu(ThreadPool& pool, const float* x, int64_t count, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  pool.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    kGeluRow(x + begin, end - begin, ResultAt(y, begin, bf16), bf16);
  });
}

void GeluErfMul(ThreadPool& pool, float* x, int64_t rows, int64_t width, void* y,
                ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    float* gate = x + row * 2 * width + begin;
    const float* up = gate + width;
    kGeluRow(gate, end - begin, gate, false);
    void* out = ResultAt(y, row * width + begin, bf16);
    for (int64_t i = 0; i < end - begin; ++i) StoreResult(out, i, gate[i] * up[i], bf16);
  });
}

}  // namespace sluice::kernels
