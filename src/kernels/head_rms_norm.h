// head_rms_norm: an RMS norm of every attention head by itself (the QK norm).
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace sluice::kernels {

// In place: each of the `num_heads` heads of each row becomes weight * (head * rsqrt(mean(head^2) +
// eps)), in F32. x: F32, row i at x + i * stride, heads dense [num_heads, head_dim]; weight: F32
// [head_dim], shared by all heads. Source: transformers modeling_qwen3.py Qwen3Attention (q_norm,
// k_norm), in F32.
void HeadRmsNorm(ThreadPool& pool, float* x, int64_t stride, const float* weight, float eps,
                 int64_t rows, int num_heads, int head_dim);

}  // namespace sluice::kernels
