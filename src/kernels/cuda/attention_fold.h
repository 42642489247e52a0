// Computes a softmax in pieces: combines a row's results over ranges of positions.
#pragma once

#include <math.h>

#include "kernels/cuda/device_code.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr float kNoScore = -INFINITY;  // largest score of an empty range
constexpr float kLog2E = 1.44269504088896f;
// All weights are multiplied by 2 to this power. The factor cancels in the division by their sum.
// With it, F16 weights keep full precision down to 2^-29 of the largest weight.
constexpr int WeightExponent(bool is_e4m3) {
  return is_e4m3 ? 15 : 0;
}

// Returns the value to which exponents are relative; 0 for an empty range, whose weights are then
// 0.
__device__ __forceinline__ float ExponentReference(float largest) {
  return largest == kNoScore ? 0.0f : largest;
}

// Computes the factors for adding two sums, each of which is relative to its own largest score.
// `largest` becomes the larger of the two scores.
__device__ __forceinline__ void FoldLargest(float& largest, float other, float& factor,
                                            float& other_factor) {
  const float next = fmaxf(largest, other);
  factor = exp2f(largest - ExponentReference(next));
  other_factor = exp2f(other - ExponentReference(next));
  largest = next;
}

// Written with fmaf, so that every compiler rounds in the same way.
__device__ __forceinline__ float FoldSum(float sum, float factor, float other, float other_factor) {
  return fmaf(sum, factor, other * other_factor);
}

// Returns the final factor of a row's sums: v_scale / sum of weights. `largest`: the score to which
// both are relative. `sink`: the sink of the row's head (AttentionArgs::sinks), or null; sink and
// sum are first scaled to the larger of the two scores, so neither overflows. `one`: the amount
// that a weight of 1 adds to the sum.
__device__ __forceinline__ float LastFactor(float v_scale, float largest, float weight_sum,
                                            const float* sink, float one) {
  if (sink == nullptr) return v_scale / weight_sum;
  float factor, sink_factor;
  FoldLargest(largest, *sink * kLog2E, factor, sink_factor);
  return v_scale * factor / FoldSum(weight_sum, factor, one, sink_factor);
}

// Returns the result of a row: its sum times v_scale / sum of weights. Adding +0 turns a -0 left by
// underflow into +0.
__device__ __forceinline__ float FinishSum(float sum, float factor) {
  return fmaf(sum, factor, 0.0f);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
