// Converts elements of narrow formats in the lanes of a 256-bit vector.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels {
namespace {

// Zero-extends 8 bytes at p to 32-bit lanes.
inline __m256i Bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// Converts E4M3 codes in the lowest bytes of the lanes; the other bytes may be anything. A number
// below 2^-6 is 2^-6 * 0.mmm, computed from 2^-7 * 1.mmm without subnormal F32 numbers.
inline __m256 FloatsOfE4M3(__m256i codes) {
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7F));
  const __m256 normal = _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23)));
  const __m256 subnormal = _mm256_sub_ps(_mm256_add_ps(normal, normal), _mm256_set1_ps(0x1p-6f));
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7F));
  __m256i bits =
      _mm256_castps_si256(_mm256_blendv_ps(normal, subnormal, _mm256_castsi256_ps(is_subnormal)));
  bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC00000), is_nan);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
  return _mm256_castsi256_ps(_mm256_or_si256(bits, sign));
}

inline __m256 FloatsOfE8M0(__m256i codes) {
  const __m256i is_zero = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
  const __m256i is_nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(0xFF));
  __m256i bits = _mm256_slli_epi32(codes, 23);
  bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x00400000), is_zero);
  bits = _mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC00000), is_nan);
  return _mm256_castsi256_ps(bits);
}

}  // namespace
}  // namespace sluice::kernels
