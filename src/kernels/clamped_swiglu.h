// clamped swiglu: the gated activation of gpt-oss' experts.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

struct SwigluClamp {
  float alpha = 1.702f;
  float limit = 7;
};

// Computes y[m, i] = (u + 1) * g * sigmoid(alpha * g), where g = min(x[m, 2 i], limit) and u = x[m,
// 2 i + 1] clamped to [-limit, limit]: gate and up are interleaved. x: F32 [rows, 2 * width]
// contiguous; y: [rows, width] F32 or BF16, rounded once. Source: transformers' GptOssExperts.
void ClampedSwiglu(ThreadPool& pool, const float* x, int64_t rows, int64_t width,
                   const SwigluClamp& clamp, void* y, ElementType y_type);

}  // namespace sluice::kernels
