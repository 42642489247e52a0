// Softmax in pieces: how the results of a row over ranges of its positions become one.
#pragma once

#include <math.h>

#include "kernels/cuda/device_code.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr float kNoScore = -INFINITY;  // the largest score of no position

// What exponents are taken relative to, so that those of no position are 0.
__device__ __forceinline__ float ExponentReference(float largest) {
  return largest == kNoScore ? 0.0f : largest;
}

// By what two sums, taken relative to their largest scores, are to be multiplied before they are
// added. `largest` becomes that of both.
__device__ __forceinline__ void FoldLargest(float& largest, float other, float& factor,
                                            float& other_factor) {
  const float next = fmaxf(largest, other);
  factor = exp2f(largest - ExponentReference(next));
  other_factor = exp2f(other - ExponentReference(next));
  largest = next;
}

// Spelt out, so that every compiler rounds alike wherever this stands.
__device__ __forceinline__ float FoldSum(float sum, float factor, float other, float other_factor) {
  return fmaf(sum, factor, other * other_factor);
}

// The result of a row: its sum times v_scale / sum of weights. Adding +0 makes +0 of a -0 that is
// left of vanished numbers.
__device__ __forceinline__ float FinishSum(float sum, float factor) {
  return fmaf(sum, factor, 0.0f);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
