// IEEE half precision: sign, 5 exponent bits, 10 mantissa bits; largest value 65504.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

struct Float16 {
  uint16_t bits = 0;
};

// Rounds to nearest, ties to even. Values beyond +-65504 saturate and never become infinite; NaN
// stays NaN. Branch-free, so that loops over it vectorize.
inline Float16 ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kMax = 0x477FE000u;  // 65504
  const uint32_t clamped = magnitude > kMax ? kMax : magnitude;
  // Drops 13 mantissa bits; the exponent bias changes from 127 to 15.
  const uint32_t normal = ((clamped + 0xFFFu + (clamped >> 13 & 1u)) >> 13) - (112u << 10);
  // Below 2^-14 numbers are 2^-24 apart, as F32 numbers are between 0.5 and 1.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + 0.5f) - 0x3F000000u;
  const uint32_t code = clamped < 0x38800000u ? subnormal : normal;
  return {static_cast<uint16_t>((magnitude > 0x7F800000u ? 0x7E00u : code) | sign)};
}

// Exact. Infinities, which ToFloat16 never produces, become NaN.
inline float ToFloat(Float16 value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t magnitude = value.bits & 0x7FFFu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude >= 0x7C00u ? 0x7FC00000u : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

}  // namespace sluice
