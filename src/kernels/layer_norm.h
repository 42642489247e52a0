// layer_norm: the norm of encoders.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// For each row of x [rows, cols], in place: (x - mean) / sqrt(variance + eps) * weight + bias,
// with the population variance of the row. y [rows, cols], F32 or BF16 (`y_type`): the result
// again, for the product that follows; null if it is not wanted. A row's result depends on that
// row alone.
void LayerNorm(ThreadPool& pool, float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t cols, void* y, ElementType y_type);

}  // namespace sluice::kernels
