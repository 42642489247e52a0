// rms_norm: y = w * x / sqrt(mean(x^2) + eps), over whole rows or over each attention head (QK
// norm), optionally preceded by the residual add.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// For each of `rows` rows of length `cols`, computes y = weight * (x * rsqrt(mean(x^2) + eps)) in
// F32 and rounds it once to `y_type` (F32 or BF16). x: F32 [rows, cols] with row stride x_stride;
// weight: F32 [cols]; y: [rows, cols] contiguous. Source: transformers modeling_llama.py
// LlamaRMSNorm, in F32.
void RmsNorm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, float eps,
             int64_t rows, int64_t cols, void* y, ElementType y_type);

// Computes residual += delta (both F32 [rows, cols] contiguous), then y = RmsNorm(residual), fused.
// Bit-equal to ResidualAdd followed by RmsNorm.
void AddRmsNorm(ThreadPool& pool, float* residual, const float* delta, const float* weight,
                float eps, int64_t rows, int64_t cols, void* y, ElementType y_type);

// Replaces each of the `num_heads` heads of each row by weight * (head * rsqrt(mean(head^2) +
// eps)), in F32. x: F32, row i at x + i * stride, heads contiguous [num_heads, head_dim]; weight:
// F32 [head_dim], shared by all heads. Source: transformers modeling_qwen3.py Qwen3Attention
// (q_norm, k_norm), in F32.
void HeadRmsNorm(ThreadPool& pool, float* x, int64_t stride, const float* weight, float eps,
                 int64_t rows, int num_heads, int head_dim);

// Normalizes each of the `groups` groups of `width` elements of each row separately. x: F32, rows
// x_stride elements apart; weight: [groups * width]; y: [rows, groups * width], rows y_stride
// elements apart; y may be x.
void GroupRmsNorm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  float eps, int64_t rows, int64_t groups, int64_t width, void* y, int64_t y_stride,
                  ElementType y_type);

// Computes residual += delta for `count` F32 elements.
void ResidualAdd(ThreadPool& pool, float* residual, const float* delta, int64_t count);

}  // namespace sluice::kernels
