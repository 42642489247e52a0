#include "kernels/clamped_swiglu.h"

#include <algorithm>
#include <cmath>

#include "kernels/float_result.h"
#include "kernels/row_parts.h"
#include "kernels/vector_kernel.h"

namespace sluice::kernels {

namespace reference {

void ClampedSwigluRow(const float* pairs, int64_t count, float alpha, float limit, void* y,
                      bool y_bf16) {
  for (int64_t i = 0; i < count; ++i) {
    const float gate = std::min(pairs[2 * i], limit);
    const float up = std::clamp(pairs[2 * i + 1], -limit, limit);
    StoreResult(y, i, gate / (1.0f + std::exp(-alpha * gate)) * (up + 1.0f), y_bf16);
  }
}

}  // namespace reference

SLUICE_VECTOR_KERNEL(ClampedSwigluRow);

void ClampedSwiglu(ThreadPool& pool, const float* x, int64_t rows, int64_t width,
                   const SwigluClamp& clamp, void* y, ElementType y_type) {
  const bool bf16 = IsBf16Result(y_type);
  constexpr int64_t kGrain = 1024;
  ForEachRowPart(pool, rows, width, kGrain, [&](int64_t row, int64_t begin, int64_t end) {
    kClampedSwigluRow(x + (row * width + begin) * 2, end - begin, clamp.alpha, clamp.limit,
                      ResultAt(y, row * width + begin, bf16), bf16);
  });
}

}  // namespace sluice::kernels
