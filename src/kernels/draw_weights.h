// Computes sampling weights of tokens, bit-identical on CPU and device. nvcc also compiles this
// header: include only headers that nvcc accepts.
#pragma once

#include <stdint.h>

#ifndef __CUDA_ARCH__
#include <bit>
#endif

#include "kernels/on_device_too.h"

namespace sluice::kernels {

// Logits are sorted into buckets by their distance from the largest: 32 buckets per unit; the last
// bucket contains all distances from 31.97 on.
constexpr int kDrawBuckets = 1024;
constexpr float kDrawBucketsPerNat = 32;
// Number of weights per block sum.
constexpr int64_t kDrawSumBlock = 256;

constexpr int64_t NumDrawBlocks(int64_t weights) {
  return (weights + kDrawSumBlock - 1) / kDrawSumBlock;
}

SLUICE_ON_DEVICE_TOO inline int32_t DrawBucket(float distance) {
  const float bucket = distance * kDrawBucketsPerNat;
  return static_cast<int32_t>(bucket < kDrawBuckets - 1 ? bucket : float{kDrawBuckets - 1});
}

// Returns the term that a weight adds to the sum of its bucket. The sums are exact, so their order
// does not matter: the weights of a bucket are within 3.2 % of each other and have 24 bits, and the
// terms of the last bucket are multiples of 2^-80 below 2^-46.
SLUICE_ON_DEVICE_TOO inline double BucketWeight(float weight) {
  return weight < 0x1p-57f ? 0.0 : static_cast<double>(weight);
}

// Returns a * b, rounded separately: never fused with a following addition.
SLUICE_ON_DEVICE_TOO inline float RoundedProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// Returns exp(-x) for x >= 0 with a relative error below 1e-7; 0 from 87 on. No branches or calls,
// so that loops over it vectorize; every product and sum is rounded separately.
SLUICE_ON_DEVICE_TOO inline float ExpOfMinus(float x) {
#ifdef __CUDA_ARCH__
  const auto times = [](float a, float b) { return __fmul_rn(a, b); };
  const auto plus = [](float a, float b) { return __fadd_rn(a, b); };
  const auto bits = [](float a) { return __float_as_int(a); };
  const auto number = [](int32_t a) { return __int_as_float(a); };
#else
  const auto times = [](float a, float b) { return a * b; };
  const auto plus = [](float a, float b) { return a + b; };
  const auto bits = [](float a) { return std::bit_cast<int32_t>(a); };
  const auto number = [](int32_t a) { return std::bit_cast<float>(a); };
#endif
  const float clamped = x < 87.0f ? x : 87.0f;
  // Adding 1.5 * 2^23 rounds to an integer in the low bits.
  const float shifted = plus(times(clamped, -1.44269504f), 12582912.0f);
  const float n = plus(shifted, -12582912.0f);
  const float r = plus(plus(-clamped, -times(n, 0.693359375f)), times(n, 2.12194440e-4f));
  float p = 1.9875691500e-4f;
  p = plus(times(p, r), 1.3981999507e-3f);
  p = plus(times(p, r), 8.3334519073e-3f);
  p = plus(times(p, r), 4.1665795894e-2f);
  p = plus(times(p, r), 1.6666665459e-1f);
  p = plus(times(p, r), 5.0000001201e-1f);
  const float e = plus(plus(times(times(p, r), r), r), 1.0f);
  const int32_t exponent = (bits(shifted) - bits(12582912.0f) + 127) << 23;
  return x < 87.0f ? times(e, number(exponent)) : 0.0f;
}

}  // namespace sluice::kernels
