#include "kernels/head_rms_norm.h"

#include "kernels/kernel_table.h"

namespace sluice::kernels {

void HeadRmsNorm(ThreadPool& pool, float* x, int64_t stride, const float* weight, float eps,
                 int64_t rows, int num_heads, int head_dim) {
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int head = 0; head < num_heads; ++head) {
        // The mean is complete before the first element is written.
        float* values = x + row * stride + int64_t{head} * head_dim;
        kernels.rms_norm_row(values, weight, eps, head_dim, values, /*y_bf16=*/false);
      }
    }
  });
}

}  // namespace sluice::kernels
