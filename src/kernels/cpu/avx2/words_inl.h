// Numbers of narrow formats in the lanes of a vector of 256 bits.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels {
namespace {

// 8 bytes at p.
inline __m256i Bytes(const uint8_t* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}

// E4M3 codes in the lowest bytes, with anything above. A number below 2^-6 is 2^-6 * 0.mmm, got
// from 2^-7 * 1.mmm without touching subnormal numbers of F32.
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

// E4M3 codes in the upper bytes of words to BF16; `codes`: the same in the lower bytes, with
// anything above. The numbers below 2^-6 come from a table by what they differ from the others'
// formula, to which every code of an exponent of zero looks like 2^-7 * 1.mmm. NaN is not treated.
inline __m256i Bf16OfE4M3(__m256i upper, __m256i codes) {
  constexpr short kBase = 120 << 7;
  const __m256i differences = _mm256_broadcastsi128_si256(_mm_setr_epi16(
      -kBase, 0x3B00 - kBase - 0x10, 0x3B80 - kBase - 0x20, 0x3BC0 - kBase - 0x30,
      0x3C00 - kBase - 0x40, 0x3C20 - kBase - 0x50, 0x3C40 - kBase - 0x60, 0x3C60 - kBase - 0x70));
  const __m256i shifted =
      _mm256_and_si256(_mm256_srai_epi16(upper, 4), _mm256_set1_epi16(static_cast<short>(0x87F0)));
  const __m256i normal = _mm256_add_epi16(shifted, _mm256_set1_epi16(kBase));
  const __m256i is_subnormal = _mm256_cmpeq_epi16(
      _mm256_and_si256(upper, _mm256_set1_epi16(0x7800)), _mm256_setzero_si256());
  // Both bytes of word m of the table.
  const __m256i places = _mm256_add_epi16(
      _mm256_mullo_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(7)), _mm256_set1_epi16(0x0202)),
      _mm256_set1_epi16(0x0100));
  const __m256i difference = _mm256_shuffle_epi8(differences, places);
  return _mm256_add_epi16(normal, _mm256_and_si256(difference, is_subnormal));
}

}  // namespace
}  // namespace sluice::kernels
