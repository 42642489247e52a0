// Softmax in pieces: how the results of a row over ranges of its positions become one.
#pragma once

#include <math.h>

#include "kernels/cuda/device_code.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr float kNoScore = -INFINITY;  // the largest score of no position
constexpr float kLog2E = 1.44269504088896f;
// All weights are taken times 2^this, which their sum divides out: so that of a weight of F16
// nothing is lost down to 2^-29 of the largest.
constexpr int WeightExponent(bool is_e4m3) {
  return is_e4m3 ? 15 : 0;
}

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

// What a row's sums are to be multiplied by: v_scale / sum of weights. `largest`: the score that
// both are relative to. `sink`: of the row's head (AttentionArgs::sinks), or null; brought to the
// larger of the two scores, neither becomes infinite. `one`: what a weight of 1 counts in the sum.
__device__ __forceinline__ float LastFactor(float v_scale, float largest, float weight_sum,
                                            const float* sink, float one) {
  if (sink == nullptr) return v_scale / weight_sum;
  float factor, sink_factor;
  FoldLargest(largest, *sink * kLog2E, factor, sink_factor);
  return v_scale * factor / FoldSum(weight_sum, factor, one, sink_factor);
}

// The result of a row: its sum times v_scale / sum of weights. Adding +0 makes +0 of a -0 that is
// left of vanished numbers.
__device__ __forceinline__ float FinishSum(float sum, float factor) {
  return fmaf(sum, factor, 0.0f);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
