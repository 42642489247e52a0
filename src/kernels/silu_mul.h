// silu_mul: the gated activation of an MLP with SiLU.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Computes y[m, i] = silu(x[m, i]) * x[m, width + i], silu(z) = z / (1 + exp(-z)). x: F32 [rows, 2
// * width] contiguous (gate, then up); y: [rows, width] F32 or BF16, rounded once.
void SiluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type);

// Computes y[m, i] = silu(gate[m, i]) * x[m, i] for i < width, rows `stride` elements apart in gate
// and x; y may be x. y: [rows, width] F32 or BF16, rounded once, rows `y_stride` elements apart.
void SiluGate(ThreadPool& pool, const float* gate, const float* x, int64_t stride, int64_t rows,
              int64_t width, void* y, int64_t y_stride, ElementType y_type);

// Computes y[m, i] *= sigmoid(gate[m, i]) for i < width. gate: F32 rows `stride` elements apart; y:
// F32 or BF16, contiguous [rows, width].
void SigmoidGate(ThreadPool& pool, const float* gate, int64_t stride, int64_t rows, int64_t width,
                 void* y, ElementType y_type);

}  // namespace sluice::kernels
