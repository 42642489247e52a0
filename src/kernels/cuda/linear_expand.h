// Converts codes to BF16 numbers in registers. The conversion is exact, because E4M3, I8, I4 and
// E2M1 have fewer mantissa bits than BF16. A register has two numbers, the first in the low half.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

constexpr uint32_t kMinusZeros = 0x80008000u;  // adds nothing in FmaBf16x2, keeps -0

// Returns bytes 2 * pair and 2 * pair + 1 of `word` in the low bytes of the two halves.
__device__ __forceinline__ uint32_t SpreadBytes(uint32_t word, int pair) {
  return pair == 0 ? (word & 0xFFu) | (word & 0xFF00u) << 8
                   : (word >> 16 & 0xFFu) | (word >> 8 & 0xFF0000u);
}

// Expands four I8 codes: 128 + the low 7 bits, minus 128, or minus 256 if the sign bit is set.
__device__ __forceinline__ void ExpandI8(uint32_t word, uint32_t& low, uint32_t& high) {
  uint32_t pairs[2];
  SLUICE_UNROLL
  for (int pair = 0; pair < 2; ++pair) {
    const uint32_t bytes = SpreadBytes(word, pair);
    pairs[pair] = FmaBf16x2((bytes & 0x007F007Fu) | 0x43004300u, 0x3F803F80u,
                            (bytes & 0x00800080u) | 0xC300C300u);
  }
  low = pairs[0];
  high = pairs[1];
}

// Returns -(128 + the zero point of an I4 group) in both halves. `word`: the format of
// GroupScales::kWithZeros.
__device__ __forceinline__ uint32_t RaisedI4Zeros(uint32_t word) {
  const uint32_t zero = word & device::kInt4ZeroMask;
  return (zero | zero << 16) | 0xC300C300u;
}

// Returns codes 2 * pair and 2 * pair + 1 of the eight I4 codes in `word`, minus their zero point:
// (128 + code) - (128 + zero point).
__device__ __forceinline__ uint32_t ExpandI4(uint32_t word, int pair, uint32_t raised_zeros) {
  const uint32_t codes = word >> (8 * pair);
  return FmaBf16x2((codes & 0xFu) | (codes & 0xF0u) << 12 | 0x43004300u, 0x3F803F80u, raised_zeros);
}

// Returns codes 2 * pair and 2 * pair + 1 of the eight E2M1 codes in `word`, times 2^-126: BF16
// bits with E2M1's bias of 1 instead of 127.
__device__ __forceinline__ uint32_t RaisedE2m1(uint32_t word, int pair) {
  // Moves each code to the highest 4 bits of its half. The lower bits are masked off afterwards.
  const uint32_t codes =
      __byte_perm(word << 4, word, static_cast<unsigned>(pair * 0x1111 + 0x4400));
  return (codes & 0x80008000u) | (codes >> 6 & 0x01C001C0u);
}

// Returns an E8M0 scale as BF16 in both halves.
__device__ __forceinline__ uint32_t TwiceE8m0(uint32_t byte) {
  const uint32_t bits = byte == 0xFF ? 0x7FC0u : byte == 0 ? 0x0040u : byte << 7;
  return bits << 16 | bits;
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
