// RoPE of the last elements of a head (TailRope); each thread rotates one pair.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

// The elements of a rotated pair, and their indices.
struct RotatedPair {
  int first, second;
  float a, b;
};

// Rotates pair `pair` of row `row`, whose elements begin at `x`.
template <typename T>
__device__ __forceinline__ RotatedPair RotatePair(const device::TailRope& rope, int64_t row,
                                                  const T* x, int pair) {
  const int half = rope.dim / 2;
  RotatedPair rotated;
  rotated.first = rope.interleaved ? 2 * pair : pair;
  rotated.second = rope.interleaved ? 2 * pair + 1 : pair + half;
  const float a = x[rotated.first], b = x[rotated.second];
  rotated.a = a;
  rotated.b = b;
  if (rope.cos_sin == nullptr) return rotated;
  const float cosine = rope.cos_sin[row * rope.dim + pair];
  const float sine = rope.cos_sin[row * rope.dim + half + pair];
  rotated.a = a * cosine - b * sine;
  rotated.b = a * sine + b * cosine;
  return rotated;
}

// Writes a number as kBF16, or as E4M3(value / scale).
__device__ __forceinline__ void StoreNumber(void* out, ElementType type, int64_t index, float value,
                                            float scale) {
  if (type == ElementType::kBF16)
    static_cast<uint16_t*>(out)[index] = FloatToBf16(value);
  else
    static_cast<uint8_t*>(out)[index] = FloatToE4m3(value / scale);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
