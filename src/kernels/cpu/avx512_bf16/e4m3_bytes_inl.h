// Converts E4M3 codes to the two bytes of their BF16 values, by byte permutations (AVX-512 VBMI).
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels::avx512_bf16 {
namespace {

// The BF16 bytes of the 128 magnitudes.
struct E4M3Bytes {
  alignas(64) uint8_t lower[128] = {}, upper[128] = {};
  constexpr E4M3Bytes() {
    constexpr int kSubnormals[8] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
    for (int i = 0; i < 128; ++i) {
      const int normal = (i << 4) + ((127 - 7) << 7);
      const int bits = i < 8 ? kSubnormals[i] : i == 127 ? 0x7FC0 : normal;
      lower[i] = static_cast<uint8_t>(bits & 0xFF);
      upper[i] = static_cast<uint8_t>(bits >> 8);
    }
  }
};
constexpr E4M3Bytes kE4M3Bytes;

// Converts 64 codes: replaces each code by the lower, or by the upper, byte of its number.
struct E4M3Permutations {
  // The permutation uses 7 bits of an index, so the sign bit is ignored.
  __m512i Lower(__m512i codes) const { return _mm512_permutex2var_epi8(lower[0], codes, lower[1]); }
  __m512i Upper(__m512i codes) const {
    constexpr int kAOrBAndC = 0xF8;
    return _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(upper[0], codes, upper[1]), codes,
                                     sign, kAOrBAndC);
  }

  __m512i lower[2] = {_mm512_load_si512(kE4M3Bytes.lower),
                      _mm512_load_si512(kE4M3Bytes.lower + 64)};
  __m512i upper[2] = {_mm512_load_si512(kE4M3Bytes.upper),
                      _mm512_load_si512(kE4M3Bytes.upper + 64)};
  __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
};

}  // namespace
}  // namespace sluice::kernels::avx512_bf16
