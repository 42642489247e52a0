// NVFP4 codes: prepares the scales of several panels together, by byte permutations (AVX-512 VBMI).
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/avx512/codes_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

// The bytes of Nvfp4Codes::Scales for each non-negative E4M3 code of a scale.
struct Nvfp4ScaleBytes {
  alignas(64) uint8_t less_lower[128] = {}, less_upper[128] = {}, mask_lower[128] = {};
  constexpr Nvfp4ScaleBytes() {
    for (int code = 0; code < 128; ++code) {
      int exponent = code >> 3, eighths = 8 + code % 8;
      if (exponent == 0) {
        exponent = 1;
        eighths = code;
        for (; eighths != 0 && eighths < 8; eighths *= 2) --exponent;
      }
      const int bits = (exponent + 127 - 7) * 128 + (eighths - 8) * 16;
      const int less = code == 0 ? 0xFFFF : (127 + 126) * 128 - bits;
      less_lower[code] = static_cast<uint8_t>(less & 0xFF);
      less_upper[code] = static_cast<uint8_t>(less >> 8);
      mask_lower[code] = static_cast<uint8_t>(kHalfMore.words[eighths % 8] & 0xFF);
    }
  }
};
constexpr Nvfp4ScaleBytes kNvfp4ScaleBytes;

// Permutation indices for each of four panels of 16 rows: for each row r, bytes r and 64 + r,
// twice.
struct RowPlaces {
  alignas(64) uint8_t bytes[4][64] = {};
  constexpr RowPlaces() {
    for (int panel = 0; panel < 4; ++panel) {
      for (int i = 0; i < 64; ++i)
        bytes[panel][i] = static_cast<uint8_t>(16 * panel + i / 4 + (i % 2 != 0 ? 64 : 0));
    }
  }
};
constexpr RowPlaces kRowPlaces;

template <Among kAmong>
struct Nvfp4Permutations : Nvfp4Codes<kAmong> {
  using Scales = typename Nvfp4Codes<kAmong>::Scales;

  // Prepares the scales of panels from kFirst on, `stride` bytes apart, four panels at a time.
  template <int kFirst = 0, int kPanels>
  __attribute__((always_inline)) void ScalesOfPanels(const uint8_t* scales, int64_t stride,
                                                     Scales (&ready)[kPanels]) {
    constexpr int kCount = kPanels - kFirst < 4 ? kPanels - kFirst : 4;
    __m512i codes = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int p = 0; p < kCount; ++p) {
      codes = _mm512_mask_broadcast_i32x4(
          codes, static_cast<__mmask16>(0xF << 4 * p),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + (kFirst + p) * stride)));
    }
    if constexpr (kAmong == Among::kFewProducts) largest = _mm512_max_epu8(largest, codes);
    const auto bytes_of = [&](const uint8_t* table) __attribute__((always_inline)) {
      return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes,
                                      _mm512_load_si512(table + 64));
    };
    const __m512i less_lower = bytes_of(kNvfp4ScaleBytes.less_lower);
    const __m512i less_upper = bytes_of(kNvfp4ScaleBytes.less_upper);
    const __m512i mask_lower = bytes_of(kNvfp4ScaleBytes.mask_lower);
#pragma GCC unroll 4
    for (int p = 0; p < kCount; ++p) {
      const __m512i places = _mm512_load_si512(kRowPlaces.bytes[p]);
      ready[kFirst + p] = {_mm512_permutex2var_epi8(less_lower, places, less_upper),
                           _mm512_permutex2var_epi8(mask_lower, places, _mm512_set1_epi32(-1))};
    }
    if constexpr (kFirst + kCount < kPanels) ScalesOfPanels<kFirst + kCount>(scales, stride, ready);
  }
  // With many sums, no register is left for `largest`, so the scales are checked again.
  bool IsUnusual(const uint8_t* scales, int64_t count) const {
    if constexpr (kAmong == Among::kManyProducts)
      return Nvfp4Codes<kAmong>::IsUnusual(scales, count);
    return _mm512_cmpge_epu8_mask(largest, _mm512_set1_epi8(0x7F)) != 0;
  }

  __m512i largest = _mm512_setzero_si512();  // largest code of the scales so far
};

}  // namespace
}  // namespace sluice::kernels::avx512_bf16
