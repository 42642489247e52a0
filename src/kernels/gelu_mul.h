// gelu_mul: the gated activation of an MLP with GELU by tanh.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Computes y[m, i] = gelu(x[m, i]) * x[m, width + i], gelu(z) = z / 2 * (1 + tanh(sqrt(2 / pi) * (z
// + 0.044715 z^3))), which is computed as z / (1 + exp(-2 sqrt(2 / pi) (z + 0.044715 z^3))).
// Shapes, types and rounding as for SiluMul. Source: transformers activations.py, GELUTanh.
void GeluMul(ThreadPool& pool, const float* x, int64_t rows, int64_t width, void* y,
             ElementType y_type);

}  // namespace sluice::kernels
