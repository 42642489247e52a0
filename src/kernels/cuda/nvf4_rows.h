// Rounds rows as RowScale::kNvF4, and packs rounded rows to the operands of tensor cores: codes,
// and scales in the order of nvf4_scales.h. Shared by the kernels that write NVFP4 rows and by the
// kernel that packs rows in memory, so that the results are bit-identical.
//
// A group's scale need not be stored with the rounded numbers: it is recovered from them.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr int kHalfGroup = device::kNvF4Group / 2;

// Returns the bits of the largest magnitude. Bits compare as the numbers do, and NaN is the
// largest.
__device__ __forceinline__ uint32_t LargestBits(const float (&values)[kHalfGroup]) {
  uint32_t largest = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kHalfGroup; ++i) {
    const uint32_t bits = BitsOf(values[i]) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Returns the nearest E2M1 number (0, .5, 1, 1.5, 2, 3, 4, 6), ties to the even code. Numbers
// beyond +-6 become +-6; NaN becomes 6.
__device__ __forceinline__ float RoundToE2m1(float value) {
  constexpr float kMax = 6.0f;
  const uint32_t sign = BitsOf(value) & 0x80000000u;
  const float magnitude = FloatFromBits(BitsOf(value) & 0x7FFFFFFFu);
  const float clamped = magnitude < kMax ? magnitude : kMax;
  // Adding `magic` rounds to E2M1's step for this magnitude: .5 below 2, 1 below 4, then 2.
  const float magic = clamped < 2.0f ? 0x1.8p22f : (clamped < 4.0f ? 0x1.8p23f : 0x1.8p24f);
  return FloatFromBits(BitsOf((clamped + magic) - magic) | sign);
}

// Rounds half a group of RowScale::kNvF4, given the bits of the group's largest magnitude.
__device__ __forceinline__ void RoundToNvF4(uint32_t largest_bits, float static_scale,
                                            float (&values)[kHalfGroup]) {
  const float scale = E4m3ToFloat(FloatToE4m3(FloatFromBits(largest_bits) / 6.0f / static_scale));
  const float whole = scale * static_scale;
  SLUICE_UNROLL
  for (int i = 0; i < kHalfGroup; ++i)
    values[i] = whole == 0 ? 0.0f : RoundToE2m1(values[i] / whole) * scale;
}

constexpr float kLeastNvF4Scale = 0x1p-9f;  // the smallest E4M3 number

// Returns the code of an E2M1 number; NaN becomes the code of 6.
__device__ __forceinline__ uint32_t E2m1Code(float value) {
  const uint32_t bits = BitsOf(RoundToE2m1(value));
  // Lowers the exponent's bias from 127 to 1.
  return BitsOf(FloatFromBits(bits & 0x7FFFFFFFu) * 0x1p-126f) >> 22 | (bits >> 28 & 8u);
}

// Returns which of the two smallest scales make all values E2M1 numbers: bit 0 for the smallest,
// bit 1 for the second smallest, which is twice as large. The bits of a group are the AND of the
// bits of its halves.
__device__ __forceinline__ uint32_t FittingNvF4Scales(const float (&values)[kHalfGroup]) {
  uint32_t fitting = 0;
  SLUICE_UNROLL
  for (int times = 1; times < 3; ++times) {
    const float scale = static_cast<float>(times) * kLeastNvF4Scale;
    bool is_exact = true;
    SLUICE_UNROLL
    for (int i = 0; i < kHalfGroup; ++i)
      is_exact = is_exact && RoundToE2m1(values[i] / scale) * scale == values[i];
    if (is_exact) fitting |= static_cast<uint32_t>(times);
  }
  return fitting;
}

// Recovers a scale such that every number of the group is the scale times an E2M1 number, from the
// bits of the largest magnitude and FittingNvF4Scales of the group. The largest number of a group
// is 6 times its scale. It is less only if the scale is one of the three smallest, because their
// rounding error is large.
__device__ __forceinline__ float NvF4GroupScale(uint32_t largest_bits, uint32_t fitting) {
  const float largest = FloatFromBits(largest_bits);
  if (!(largest <= 12 * kLeastNvF4Scale)) return largest / 6.0f;
  if (largest == 0) return 0;
  return ((fitting & 1) != 0 ? 1.0f : (fitting & 2) != 0 ? 2.0f : 3.0f) * kLeastNvF4Scale;
}

// Returns the codes of half a group, the first in the lowest bits.
__device__ __forceinline__ uint32_t NvF4Codes(const float (&values)[kHalfGroup], float scale) {
  uint32_t codes = 0;
  if (scale == 0) return codes;
  SLUICE_UNROLL
  for (int i = 0; i < kHalfGroup; ++i) codes |= E2m1Code(values[i] / scale) << (4 * i);
  return codes;
}

// Packs the group of rounded values that begins at column `col` of a row.
__device__ __forceinline__ void PackNvF4Group(uint8_t* codes, uint8_t* scales, int64_t row,
                                              int64_t cols, int64_t col,
                                              const float (&values)[2][kHalfGroup]) {
  const uint32_t low = LargestBits(values[0]), high = LargestBits(values[1]);
  const float scale = NvF4GroupScale(low > high ? low : high,
                                     FittingNvF4Scales(values[0]) & FittingNvF4Scales(values[1]));
  scales[device::NvF4ScaleRow(row, cols / device::kNvF4Group) +
         device::NvF4ScaleGroup(col / device::kNvF4Group)] = FloatToE4m3(scale);
  *reinterpret_cast<uint2*>(codes + (row * cols + col) / 2) =
      make_uint2(NvF4Codes(values[0], scale), NvF4Codes(values[1], scale));
}

// Called by all lanes of a warp. Like PackNvF4Group, if the adjacent lane has the other half of the
// group. `count`: 0 if this lane's half is beyond the row, else 8.
__device__ __forceinline__ void PackNvF4Half(uint8_t* codes, uint8_t* scales, int64_t row,
                                             int64_t cols, int64_t col, int count,
                                             const float (&values)[kHalfGroup]) {
  const uint32_t own = LargestBits(values), other = __shfl_xor_sync(0xFFFFFFFFu, own, 1);
  const uint32_t fitting = FittingNvF4Scales(values);
  const uint32_t both = fitting & __shfl_xor_sync(0xFFFFFFFFu, fitting, 1);
  if (count == 0) return;
  const float scale = NvF4GroupScale(own > other ? own : other, both);
  if (col % device::kNvF4Group == 0)
    scales[device::NvF4ScaleRow(row, cols / device::kNvF4Group) +
           device::NvF4ScaleGroup(col / device::kNvF4Group)] = FloatToE4m3(scale);
  *reinterpret_cast<uint32_t*>(codes + (row * cols + col) / 2) = NvF4Codes(values, scale);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
