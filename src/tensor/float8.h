// E4M3FN: sign, 4 exponent bits, 3 mantissa bits; no infinities, NaN = 0x7F and 0xFF, largest 448.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

struct Float8E4M3 {
  uint8_t bits = 0;
};

inline constexpr float kFloat8E4M3Max = 448.0f;

// Rounds to nearest, ties to even. Values beyond +-448 saturate; NaN stays NaN. Branch-free, so
// that loops over it vectorize.
inline Float8E4M3 ToFloat8E4M3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kMax = 0x43E00000u;  // 448
  const uint32_t clamped = magnitude > kMax ? kMax : magnitude;
  // Drops 20 mantissa bits; the exponent bias changes from 127 to 7.
  const uint32_t normal = ((clamped + 0x7FFFFu + (clamped >> 20 & 1u)) >> 20) - (120u << 3);
  // Below 2^-6 numbers are 2^-9 apart, as F32 numbers are between 2^14 and 2^15.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + 0x1p14f) - 0x46800000u;
  const uint32_t code = clamped < 0x3C800000u ? subnormal : normal;
  return {static_cast<uint8_t>((magnitude > 0x7F800000u ? 0x7Fu : code) | sign)};
}

inline float ToFloat(Float8E4M3 value) {
  const uint32_t sign = uint32_t{value.bits & 0x80u} << 24;
  const uint32_t code = value.bits & 0x7Fu;
  const float magnitude = code < 8 ? static_cast<float>(code) * 0x1p-9f
                                   : std::bit_cast<float>((code << 20) + (120u << 23));
  const uint32_t bits = code == 0x7F ? 0x7FC00000u : std::bit_cast<uint32_t>(magnitude);
  return std::bit_cast<float>(bits | sign);
}

}  // namespace sluice
