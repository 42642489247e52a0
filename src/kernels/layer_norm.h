// layer_norm: the norm of encoders.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Of each row of x [rows, cols], in place: (x - mean) / sqrt(variance + eps) * weight + bias, with
// the variance of the row itself (not of a sample). y [rows, cols]: the result again, F32 or BF16
// (`y_type`), for the product that follows; null: nobody wants it. A row's result depends on that
// row alone.
void LayerNorm(ThreadPool& pool, float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t cols, void* y, ElementType y_type);

}  // namespace sluice::kernels
