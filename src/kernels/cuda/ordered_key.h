// Computes integer keys of (number, index) pairs: the first of the largest numbers has the largest
// key.
#pragma once

#include "kernels/cuda/device_code.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

// Returns a key. Keys compare as the numbers do: -0 equals 0, NaN is smaller than every number.
// Among equal numbers, the lower index has the larger key. REQUIRES: 0 <= index < 2^31.
__device__ __forceinline__ uint64_t OrderedKey(float value, int64_t index) {
  const uint32_t bits = BitsOf(value);
  uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  if (value == 0) ordered = 0x80000000u;
  if (value != value) ordered = 0;
  return static_cast<uint64_t>(ordered) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(index));
}
__device__ __forceinline__ int32_t IndexOfKey(uint64_t key) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

// Returns the number whose key has this upper half.
__device__ __forceinline__ float FloatOfOrdered(uint32_t ordered) {
  return FloatFromBits(ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
