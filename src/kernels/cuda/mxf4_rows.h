// Rounds rows as RowScale::kMxF4, and packs rounded rows to operands of matrix instructions: codes,
// and one E8M0 scale for each group. Shared by the kernels that write such rows and by the one that
// packs rows in memory.
//
// A group's scale need not be stored with the rounded numbers: the same rule finds it again, since
// the largest rounded number is 4 or 6 times the scale (or less, if the scale is the smallest one),
// or NaN if the scale is.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/mxf4_layout.h"
#include "kernels/cuda/nvf4_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr int kMxF4Pieces = device::kMxF4Group / kHalfGroup;  // pieces of 8 numbers per group

// Returns the E8M0 scale of a group, given the bits of its largest magnitude: PowerOfTwoScale of
// tensor/float4.h, the rule "even" of Quark.
__device__ __forceinline__ uint32_t MxF4Scale(uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000u) return 0xFF;  // infinity or NaN
  const uint32_t power = min((largest_bits + 0x00200000u) >> 23, 254u);
  return power > 2 ? power - 2 : 0;
}

// Warp. Returns the bits of the largest magnitude of a group, which four adjacent lanes have.
__device__ __forceinline__ uint32_t LargestOfMxF4Group(const float (&values)[kHalfGroup]) {
  uint32_t largest = LargestBits(values);
  for (int mask = 1; mask < kMxF4Pieces; mask *= 2)
    largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, mask));
  return largest;
}

// Rounds numbers of a group. Division and product are exact, except where they leave the range. If
// a number of the group is infinite or NaN, all numbers become NaN.
__device__ __forceinline__ void RoundToMxF4(uint32_t largest_bits, float (&values)[kHalfGroup]) {
  const float scale = E8m0ToFloat(static_cast<uint8_t>(MxF4Scale(largest_bits)));
  SLUICE_UNROLL
  for (int i = 0; i < kHalfGroup; ++i) values[i] = RoundToE2m1(values[i] / scale) * scale;
}

// Returns the codes of rounded numbers, the first in the lowest bits.
__device__ __forceinline__ uint32_t MxF4Codes(const float (&values)[kHalfGroup], float scale) {
  uint32_t codes = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kHalfGroup; ++i) codes |= E2m1Code(values[i] / scale) << (4 * i);
  return codes;
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
