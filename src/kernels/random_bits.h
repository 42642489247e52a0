// Random numbers for dummy weights (--load-format dummy): the same on CPU and device, and for any
// division of a tensor among threads. nvcc also compiles this header, so it has few includes.
#pragma once

#include <stdint.h>

#include "kernels/on_device_too.h"

namespace sluice::kernels {

// Computes the finalizer of SplitMix64: consecutive counters give uncorrelated numbers.
SLUICE_ON_DEVICE_TOO inline uint64_t MixBits(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns 64 random bits for four elements (plain numbers) or eight bytes (codes) of row `row`,
// from `at` on. `at` counts elements or bytes. The first element is in the low bits. REQUIRES: `at`
// is a multiple of 4 for elements, and of 8 for bytes.
SLUICE_ON_DEVICE_TOO inline uint64_t RowBits(uint64_t tensor_seed, int64_t row, int64_t at) {
  return MixBits(MixBits(tensor_seed + static_cast<uint64_t>(row)) + static_cast<uint64_t>(at));
}

// Returns a uniformly distributed number from the low 16 bits: an integer in [-32768, 32767] times
// scale.
SLUICE_ON_DEVICE_TOO inline float UniformNumber(uint64_t bits, float scale) {
  return static_cast<float>(static_cast<int16_t>(bits & 0xFFFF)) * scale;
}

// Maps a random byte to a valid code: an E4M3 NaN becomes a finite number, the integer -128 becomes
// 0.
SLUICE_ON_DEVICE_TOO inline uint8_t ValidE4m3Code(uint8_t byte) {
  return static_cast<uint8_t>((byte & 0x7F) == 0x7F ? byte & 0xF0 : byte);
}
SLUICE_ON_DEVICE_TOO inline uint8_t ValidI8Code(uint8_t byte) {
  return static_cast<uint8_t>(byte == 0x80 ? 0 : byte);
}

// Returns scale `index` of a tensor with E4M3 scales, from 0.5 to 1.875.
SLUICE_ON_DEVICE_TOO inline uint8_t RandomE4m3Scale(uint64_t tensor_seed, int64_t index) {
  return static_cast<uint8_t>(0x30 + (MixBits(tensor_seed + static_cast<uint64_t>(index)) & 0xF));
}

}  // namespace sluice::kernels
