// E2M1 numbers of 4-bit checkpoints, and their E8M0 scales (powers of two).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sluice {

inline constexpr float kFloat4Max = 6.0f;

// Decodes E2M1: sign, 2 exponent bits, 1 mantissa bit; no infinities, no NaN. Uses the low 4 bits
// of `code`.
inline float Float4ToFloat(uint8_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[code & 7];
  return code & 8 ? -magnitude : magnitude;
}

// Returns 2^(byte - 127), or NaN for 0xFF.
inline float PowerOfTwoToFloat(uint8_t byte) {
  if (byte == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : static_cast<uint32_t>(byte) << 23);
}

// Returns the E8M0 scale of a group of E2M1 numbers: the largest magnitude `amax`, rounded to a
// power of two (up from a mantissa of 1.75), divided by 4. This is the rule "even" of Quark, which
// vLLM emulates. The result is at most 252, so that 6 times the scale is finite; larger numbers
// saturate. 0xFF, which is NaN, if `amax` is infinite or NaN. REQUIRES: the sign of `amax` is +.
inline uint8_t PowerOfTwoScale(float amax) {
  const uint32_t bits = std::bit_cast<uint32_t>(amax);
  if (bits >= 0x7F800000u) return 0xFF;
  const uint32_t power = std::min((bits + 0x00200000u) >> 23, 254u);
  return static_cast<uint8_t>(std::max(static_cast<int>(power) - 2, 0));
}

}  // namespace sluice
