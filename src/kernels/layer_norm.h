// layer_norm: the normalization of encoders.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// For each row of x [rows, cols], computes in place (x - mean) / sqrt(variance + eps) * weight +
// bias, with the population variance of the row. y [rows, cols], F32 or BF16 (`y_type`): a copy of
// the result, as input of the following product; null: none. A row's result depends only on that
// row.
void LayerNorm(ThreadPool& pool, float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t cols, void* y, ElementType y_type);

}  // namespace sluice::kernels
