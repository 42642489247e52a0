// Quantizes one row of activations to INT8, in loops without branches or calls, which the compiler
// vectorizes for its target. Every operation is exact or correctly rounded, so results do not
// depend on the target.
//
// Included by files compiled with instructions that this machine may lack: everything is in an
// unnamed namespace, and nothing of the standard library is used (cpu/ops/ops.h).
#pragma once

#include <stdint.h>

namespace sluice::kernels {
namespace {

inline float Widened(float value) {
  return value;
}
inline float Widened(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

template <typename T>
inline void QuantizeInt8(const T* x, int64_t cols, int8_t* out, float* scale) {
  // As integers, the bits of magnitudes have the same order as the magnitudes, so they are compared
  // as integers.
  int32_t largest = 0;
  for (int64_t i = 0; i < cols; ++i) {
    const float value = Widened(x[i]);
    int32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  float amax;
  __builtin_memcpy(&amax, &largest, 4);
  // The result is zero for a row of zeros, and for a row of elements that are too small for a
  // scale.
  const float least = amax / 127.0f;
  const float divisor = least == 0 ? 1.0f : least;
  *scale = divisor;
  // Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even.
  constexpr float kMagic = 0x1.8p23f;
  for (int64_t i = 0; i < cols; ++i) {
    const float value = Widened(x[i]) / divisor;
    const float low = value >= -127.0f ? value : -127.0f;  // NaN becomes -127.
    const float clamped = low <= 127.0f ? low : 127.0f;
    out[i] = static_cast<int8_t>(static_cast<int32_t>((clamped + kMagic) - kMagic));
  }
}

}  // namespace
}  // namespace sluice::kernels
