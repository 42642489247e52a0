// The vector operations of the shared kernels (cpu/*_inl.h), for AVX-512.
//
// Included only by files compiled for these instructions. Everything is in an unnamed namespace,
// and nothing of the standard library is used. Otherwise, the linker might choose a copy of an
// inline function that contains these instructions, and the whole program would need a CPU that has
// them.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels {
namespace {

constexpr int kLanes = 16;
using Floats = __m512;
using Words = __m512i;  // 32-bit lanes
using Mask = __mmask16;

inline Mask FirstLanes(int64_t count) {
  if (count <= 0) return 0;
  return count >= kLanes ? 0xFFFF : static_cast<Mask>((1u << count) - 1);
}

inline Floats Zero() {
  return _mm512_setzero_ps();
}
inline Floats Set(float value) {
  return _mm512_set1_ps(value);
}
inline Floats LoadRepeated(const float* p) {
  return Set(*p);
}
inline Floats Load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Floats Load(const float* p, Mask mask) {
  return _mm512_maskz_loadu_ps(mask, p);
}  // zeros elsewhere
inline void Store(float* p, Floats v) {
  _mm512_storeu_ps(p, v);
}
inline void Store(float* p, Floats v, Mask mask) {
  _mm512_mask_storeu_ps(p, mask, v);
}
inline Words LoadWords(const void* p) {
  return _mm512_loadu_si512(p);
}
inline Words LoadWords(const void* p, Mask mask) {
  return _mm512_maskz_loadu_epi32(mask, p);
}

inline Floats Add(Floats a, Floats b) {
  return _mm512_add_ps(a, b);
}
inline Floats Sub(Floats a, Floats b) {
  return _mm512_sub_ps(a, b);
}
inline Floats Mul(Floats a, Floats b) {
  return _mm512_mul_ps(a, b);
}
inline Floats Div(Floats a, Floats b) {
  return _mm512_div_ps(a, b);
}
inline Floats MulAdd(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}  // a * b + c
inline void AddProduct(Floats& sum, Floats a, Floats b) {
  sum = MulAdd(a, b, sum);
}
inline Floats NegMulAdd(Floats a, Floats b, Floats c) {
  return _mm512_fnmadd_ps(a, b, c);
}  // c - a * b
inline Floats Max(Floats a, Floats b) {
  return _mm512_max_ps(a, b);
}  // b where either is NaN
inline Floats Min(Floats a, Floats b) {
  return _mm512_min_ps(a, b);
}
inline Mask Greater(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
inline Mask Equal(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
inline Mask IsNan(Floats a) {
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
inline Floats Select(Mask mask, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(mask, no, yes);
}
inline int CountLanes(Mask mask) {
  return __builtin_popcount(mask);
}
inline bool Any(Mask mask) {
  return mask != 0;
}
inline Mask AndNot(Mask a, Mask b) {
  return static_cast<Mask>(b & ~a);
}  // ~a & b
inline Mask And(Mask a, Mask b) {
  return a & b;
}

// Return the first, or the second, number of each 32-bit lane's pair of BF16 numbers, as F32.
inline Floats FirstOfPair(Words pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
inline Floats SecondOfPair(Words pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
inline Floats LoadBf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
inline Floats LoadBf16(const uint16_t* p, Mask mask) {
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Rounds to nearest even; NaN stays NaN. Same as sluice::ToBFloat16.
inline __m256i Bf16Of(Floats v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __m512i result = _mm512_mask_blend_epi32(IsNan(v), rounded, quiet);
  return _mm512_cvtepi32_epi16(result);
}
inline void StoreBf16(uint16_t* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Bf16Of(v));
}
inline void StoreBf16(uint16_t* p, Floats v, Mask mask) {
  _mm256_mask_storeu_epi16(p, mask, Bf16Of(v));
}

// Integers in 32-bit lanes.
inline Words SetWords(int value) {
  return _mm512_set1_epi32(value);
}
inline Floats ToFloats(Words v) {
  return _mm512_cvtepi32_ps(v);
}
inline Words AddWords(Words a, Words b) {
  return _mm512_add_epi32(a, b);
}
// Return the even, or the odd, bytes of each lane, sign-extended to pairs of 16-bit integers.
inline Words EvenBytes(Words bytes) {
  return _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
}
inline Words OddBytes(Words bytes) {
  return _mm512_srai_epi16(bytes, 8);
}
// Multiplies 16-bit integers and adds the two products of each lane.
inline Words MulAddPairs(Words a, Words b) {
  return _mm512_madd_epi16(a, b);
}

// Operations on pairs of adjacent lanes. LoadTwice: the first min(count, kLanes / 2) elements of p,
// each in both lanes of a pair. SwapPairs: exchanges the lanes of each pair. MulSubAdd: a * b - c
// in even lanes, a * b + c in odd lanes.
inline Floats LoadTwice(const float* p, int64_t count) {
  const __m256 values =
      _mm512_castps512_ps256(Load(p, FirstLanes(count < kLanes / 2 ? count : kLanes / 2)));
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(values));
}
inline Floats SwapPairs(Floats v) {
  return _mm512_permute_ps(v, 0xB1);
}
inline Floats MulSubAdd(Floats a, Floats b, Floats c) {
  return _mm512_fmaddsub_ps(a, b, c);
}

// Loads the 2 * kLanes elements at p: even-numbered ones to `first`, odd-numbered ones to `second`.
inline void LoadPairs(const float* p, Floats& first, Floats& second) {
  const Floats a = Load(p), b = Load(p + kLanes);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  first = _mm512_permutex2var_ps(a, even, b);
  second = _mm512_permutex2var_ps(a, _mm512_or_si512(even, _mm512_set1_epi32(1)), b);
}

// Converts 32 E4M3 codes to BF16 bits: shifts the mantissa and changes the exponent's bias.
// Subnormal numbers and NaN are looked up in a table.
constexpr int kE4M3Codes = 32;
inline __m512i Bf16OfE4M3Codes(__m256i codes) {
  const __m512i wide = _mm512_cvtepu8_epi16(codes);
  const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x7F));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(wide, _mm512_set1_epi16(0x80)), 8);
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(0x3C00));
  const __m512i subnormals = _mm512_broadcast_i32x4(
      _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
  bits = _mm512_mask_permutexvar_epi16(
      bits, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)), magnitude, subnormals);
  bits = _mm512_mask_mov_epi16(bits, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7F)),
                               _mm512_set1_epi16(0x7FC0));
  return _mm512_or_si512(bits, sign);
}
inline void DecodeE4M3Codes(const uint8_t* codes, uint16_t* bf16) {
  _mm512_storeu_si512(bf16,
                      Bf16OfE4M3Codes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes))));
}

// v * 2^n for integer n in [-126, 127], given as a float.
inline Floats ScaleByPowerOfTwo(Floats v, Floats n) {
  return _mm512_scalef_ps(v, n);
}
inline Floats AddToExponent(Floats v, Floats n) {
  return ScaleByPowerOfTwo(v, n);
}
inline Floats RoundToWhole(Floats v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Return the sum or the maximum of all lanes, always computed in the same order.
inline float SumLanes(Floats v) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v),
                              _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
inline float MaxLane(Floats v) {
  return _mm512_reduce_max_ps(v);
}

}  // namespace
}  // namespace sluice::kernels
