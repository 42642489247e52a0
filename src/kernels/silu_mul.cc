#include "kernels/silu_mul.h"

#include "base/check.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {

void SiluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type) {
  CHECK(y_type == ElementType::kF32 || y_type == ElementType::kBF16,
        "the result is F32 or BF16, not {}", ElementTypeName(y_type));
  const bool bf16 = y_type == ElementType::kBF16;
  const KernelTable& kernels = Kernels();
  // Cut over all elements, so that one wide row spreads over the threads too.
  constexpr int64_t kGrain = 1024;
  pool.ParallelFor(rows * width, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / width;
      const int64_t col = begin % width;
      const int64_t count = std::min(end - begin, width - col);
      const float* gate = x + row * 2 * width + col;
      kernels.silu_mul(gate, gate + width, count,
                       static_cast<std::byte*>(y) + begin * (bf16 ? 2 : 4), bf16);
      begin += count;
    }
  });
}

}  // namespace sluice::kernels
