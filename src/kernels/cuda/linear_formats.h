// Converts weights of each format to operands of tensor cores.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/linear_expand.h"
#include "kernels/cuda/linear_plan.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

enum class Format {
  kBF16,
  kF8,        // row scales, BF16 inputs
  kF8Inputs,  // row scales, E4M3 inputs
  kF8Blocks,  // block scales, BF16 inputs
  kI8,
  kI4,    // group scales and zero points
  kNvF4,  // E2M1 with an E4M3 scale per 16 elements
  kMxF4,  // E2M1 with an E8M0 scale per 32 elements
};

// Exactness. With BF16 inputs, codes are multiplied as exact BF16 numbers: E2M1 codes times their
// group's scale (at most 2 and 4 mantissa bits, 6 in the product), I4 codes minus their zero point.
// The F32 scale of a block, or of an I4 group, would be rounded, so it multiplies the F32 sum over
// its columns, at most 128 at a time. With E4M3 inputs, E4M3 codes are multiplied in tensor cores,
// whose own sums keep fewer bits than F32 on some devices: these sums are also over at most 128
// columns and are added in F32.
template <Format kF>
struct Traits {
  static constexpr ElementType kCodes = kF == Format::kBF16 ? ElementType::kBF16
                                        : kF == Format::kI8 ? ElementType::kI8
                                        : kF == Format::kI4 ? ElementType::kInt4
                                        : kF == Format::kNvF4 || kF == Format::kMxF4
                                            ? ElementType::kF4E2M1
                                            : ElementType::kF8E4M3;
  static constexpr int kBits = device::LinearCodeBits(kCodes);
  static constexpr int kInputBits = kF == Format::kF8Inputs ? 8 : 16;
  static constexpr int kStageK = kBits == 16 ? 64 : 128;
  static constexpr int kUnits = kStageK / 32;
  static constexpr bool kHasGroups = kCodes == ElementType::kF4E2M1;
  static constexpr bool kHasBlocks = kF == Format::kF8Blocks || kF == Format::kI4;
  static constexpr bool kHasPartSums = kHasBlocks || kF == Format::kF8Inputs;
  static_assert(kBits == 16 || kStageK == 128, "part sums are those of a stage");
};

// Factor of the sums of NVFP4. The scales, which reach 448, are multiplied by 2^118 instead of
// 2^126, to stay in the range of BF16.
constexpr float kNvF4Factor = 0x1p8f;
constexpr uint32_t kNvF4Raise = 0x7A807A80u;  // 2^118 in BF16, in both halves

// Returns the offset of a chunk of 16 bytes of a row in shared memory; rows have `kStageK`
// elements. The chunk's place also depends on the row number. So the lanes of a warp, which read
// the same chunk of consecutive rows together, use different banks.
template <int kBits, int kStageK>
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  constexpr int kRowBytes = kStageK * kBits / 8;
  const int mixed = kBits == 16 ? (row & 1) << 2 : kBits == 8 ? (row & 3) << 1 : row >> 1 & 3;
  return row * kRowBytes + (chunk ^ mixed) * 16;
}

// Products are sums over k, so k may be in any order as long as x and W have the same order. A unit
// is 32 consecutive values of k. In each group of four lanes, lane t loads 8 elements of a row's
// unit, from element 8 t on, with one load. They are the lane's elements of two BF16 products of
// depth 16 (four elements each) or of one E4M3 product of depth 32. No lane needs elements that
// another lane has loaded.

// Loads the lane's 8 elements of unit `unit` of a row of 16-bit or 8-bit elements, as stored.
template <int kStageK>
__device__ __forceinline__ void LoadBf16Unit(const unsigned char* shared, int row, int unit, int t,
                                             uint32_t (&words)[4]) {
  const auto* from =
      reinterpret_cast<const uint4*>(shared + ChunkOffset<16, kStageK>(row, 4 * unit + t));
  const uint4 loaded = *from;
  words[0] = loaded.x;
  words[1] = loaded.y;
  words[2] = loaded.z;
  words[3] = loaded.w;
}
template <int kStageK>
__device__ __forceinline__ uint2 LoadByteUnit(const unsigned char* shared, int row, int unit,
                                              int t) {
  const int offset = ChunkOffset<8, kStageK>(row, 2 * unit + t / 2) + t % 2 * 8;
  return *reinterpret_cast<const uint2*>(shared + offset);
}

// Loads the lane's 8 weights of a unit as BF16. `scale`: for formats with groups, the scale of the
// lane's group. E8M0: the scale's bits; NVFP4: the scale times 2^118 in BF16, in both halves; I4:
// the word with the zero point.
template <Format kF>
__device__ __forceinline__ void LoadWeightUnit(const unsigned char* shared, int row, int unit,
                                               int t, uint32_t scale, uint32_t (&words)[4]) {
  constexpr int kStageK = Traits<kF>::kStageK;
  if constexpr (kF == Format::kBF16) {
    LoadBf16Unit<kStageK>(shared, row, unit, t, words);
  } else if constexpr (Traits<kF>::kBits == 8) {
    const uint2 codes = LoadByteUnit<kStageK>(shared, row, unit, t);
    if constexpr (kF == Format::kI8) {
      ExpandI8(codes.x, words[0], words[1]);
      ExpandI8(codes.y, words[2], words[3]);
    } else {
      E4m3x4ToBf16(codes.x, words[0], words[1]);
      E4m3x4ToBf16(codes.y, words[2], words[3]);
    }
  } else {
    const int offset = ChunkOffset<4, kStageK>(row, unit) + t * 4;
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(shared + offset);
    if constexpr (kF == Format::kI4) {
      const uint32_t zeros = RaisedI4Zeros(scale);
      SLUICE_UNROLL
      for (int pair = 0; pair < 4; ++pair) words[pair] = ExpandI4(codes, pair, zeros);
    } else if constexpr (kF == Format::kNvF4) {
      SLUICE_UNROLL
      for (int pair = 0; pair < 4; ++pair)
        words[pair] = FmaBf16x2(RaisedE2m1(codes, pair), scale, kMinusZeros);
    } else {
      const uint32_t factors = TwiceE8m0(scale);
      SLUICE_UNROLL
      for (int pair = 0; pair < 4; ++pair) {
        // Uses two products, because the product of both factors is out of BF16's range.
        const uint32_t numbers = FmaBf16x2(RaisedE2m1(codes, pair), 0x7E807E80u, kMinusZeros);
        words[pair] = FmaBf16x2(numbers, factors, kMinusZeros);
      }
    }
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
