// silu_mul: the gate of the MLP.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// y[m, i] = silu(x[m, i]) * x[m, width + i], silu(z) = z / (1 + exp(-z)). x: F32 [rows, 2 * width]
// dense (gate, then up); y: [rows, width] F32 or BF16, rounded once.
void SiluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type);

}  // namespace sluice::kernels
