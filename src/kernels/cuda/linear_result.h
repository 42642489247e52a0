// Applies scales and bias to the sum of a product.
#pragma once

#include <math.h>

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

constexpr float kNoBias = -0.0f;  // adding it changes no sum

// Uses explicit fmaf, so that rounding is the same in all callers.
__device__ __forceinline__ float ScaledResult(float sum, float row_scale, float x_scale,
                                              float bias) {
  return fmaf(sum * row_scale, x_scale, bias);
}

struct ResultScales {
  // `factor_of_all`: a power of two by which all sums must be multiplied. `row_scales_offset`:
  // offset of the expert's row scales.
  __device__ __forceinline__ void Begin(const device::LinearArgs& linear, float factor_of_all,
                                        int64_t row_scales_offset) {
    factor = factor_of_all;
    row_scales = linear.w.row_scales != nullptr ? linear.w.row_scales + row_scales_offset : nullptr;
  }

  __device__ __forceinline__ void Write(const device::LinearArgs& linear, int64_t m, int64_t n,
                                        float sum) const {
    const float row_scale = row_scales != nullptr ? row_scales[n] : 1.0f;
    const float x_scale = linear.x_scales != nullptr ? linear.x_scales[m] : 1.0f;
    const float bias = linear.bias != nullptr ? linear.bias[n] : kNoBias;
    const float value = ScaledResult(sum * factor, row_scale, x_scale, bias);
    const int64_t at = m * linear.y_stride + n;
    if (linear.y_type == ElementType::kF32)
      static_cast<float*>(linear.y)[at] = value;
    else
      static_cast<uint16_t*>(linear.y)[at] = FloatToBf16(value);
  }

  const float* row_scales;
  float factor;
};

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
