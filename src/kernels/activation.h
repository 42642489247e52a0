// activation: the activation function of an MLP, gated or not. silu_mul, gelu_mul and gelu compute
// the functions that this operator does not support.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/activation_rule.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Computes y[m, i] = f(x[m, i]) * x[m, width + i] if `gated`, else f(x[m, i]). x: F32 contiguous
// [rows, 2 * width] or [rows, width]; y: [rows, width] F32 or BF16, rounded once. Each result
// depends only on its own inputs.
void Activate(ThreadPool& pool, const ActivationRule& rule, const float* x, int64_t rows,
              int64_t width, bool gated, void* y, ElementType y_type);

}  // namespace sluice::kernels
