// The vector operations of the shared kernels (cpu/*_inl.h), for AVX2 with FMA.
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

constexpr int kLanes = 8;
using Floats = __m256;
using Words = __m256i;  // 32-bit lanes
struct Mask {           // all bits of a lane, or none
  __m256i lanes;
};

inline Mask FirstLanes(int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(count >= kLanes ? kLanes : static_cast<int>(count)),
                             lane)};
}

inline Floats Zero() {
  return _mm256_setzero_ps();
}
inline Floats Set(float value) {
  return _mm256_set1_ps(value);
}
inline Floats Load(const float* p) {
  return _mm256_loadu_ps(p);
}
// Loads one number into all lanes. Written as assembly, so that GCC 12 loads it where it is used
// instead of keeping it in a register.
inline Floats LoadRepeated(const float* p) {
  Floats result;
  asm("vbroadcastss %1, %0" : "=x"(result) : "m"(*p));
  return result;
}
inline Floats Load(const float* p, Mask mask) {
  return _mm256_maskload_ps(p, mask.lanes);
}  // zeros elsewhere
inline void Store(float* p, Floats v) {
  _mm256_storeu_ps(p, v);
}
inline void Store(float* p, Floats v, Mask mask) {
  _mm256_maskstore_ps(p, mask.lanes, v);
}
inline Words LoadWords(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline Words LoadWords(const void* p, Mask mask) {
  return _mm256_maskload_epi32(static_cast<const int*>(p), mask.lanes);
}

inline Floats Add(Floats a, Floats b) {
  return _mm256_add_ps(a, b);
}
inline Floats Sub(Floats a, Floats b) {
  return _mm256_sub_ps(a, b);
}
inline Floats Mul(Floats a, Floats b) {
  return _mm256_mul_ps(a, b);
}
inline Floats Div(Floats a, Floats b) {
  return _mm256_div_ps(a, b);
}
inline Floats MulAdd(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}  // a * b + c
// Adds a * b to `sum`. Written as assembly, because GCC 12 moves sums between registers in long
// loops.
inline void AddProduct(Floats& sum, Floats a, Floats b) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}
inline Floats NegMulAdd(Floats a, Floats b, Floats c) {
  return _mm256_fnmadd_ps(a, b, c);
}  // c - a * b
inline Floats Max(Floats a, Floats b) {
  return _mm256_max_ps(a, b);
}  // b where either is NaN
inline Floats Min(Floats a, Floats b) {
  return _mm256_min_ps(a, b);
}
inline Mask Greater(Floats a, Floats b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GT_OQ))};
}
inline Mask Equal(Floats a, Floats b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ))};
}
inline Mask IsNan(Floats a) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q))};
}
inline Floats Select(Mask mask, Floats yes, Floats no) {
  return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask.lanes));
}
inline int CountLanes(Mask mask) {
  return __builtin_popcount(_mm256_movemask_ps(_mm256_castsi256_ps(mask.lanes)));
}
inline bool Any(Mask mask) {
  return _mm256_movemask_ps(_mm256_castsi256_ps(mask.lanes)) != 0;
}
inline Mask AndNot(Mask a, Mask b) {
  return {_mm256_andnot_si256(a.lanes, b.lanes)};
}  // ~a & b
inline Mask And(Mask a, Mask b) {
  return {_mm256_and_si256(a.lanes, b.lanes)};
}

// Return the first, or the second, number of each 32-bit lane's pair of BF16 numbers, as F32.
inline Floats FirstOfPair(Words pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
inline Floats SecondOfPair(Words pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

inline Floats LoadBf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline Floats LoadBf16(const uint16_t* p, Mask mask) {
  uint16_t buffer[kLanes] = {};
  for (int i = 0; i < CountLanes(mask); ++i) buffer[i] = p[i];
  return LoadBf16(buffer);
}

// Rounds to nearest even; NaN stays NaN. Same as sluice::ToBFloat16.
inline __m128i Bf16Of(Floats v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i result = _mm256_blendv_epi8(rounded, quiet, IsNan(v).lanes);
  return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}
inline void StoreBf16(uint16_t* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), Bf16Of(v));
}
// `mask`: selects the first lanes.
inline void StoreBf16(uint16_t* p, Floats v, Mask mask) {
  uint16_t buffer[8];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(buffer), Bf16Of(v));
  for (int i = 0; i < CountLanes(mask); ++i) p[i] = buffer[i];
}

// Integers in 32-bit lanes.
inline Words SetWords(int value) {
  return _mm256_set1_epi32(value);
}
inline Floats ToFloats(Words v) {
  return _mm256_cvtepi32_ps(v);
}
inline Words AddWords(Words a, Words b) {
  return _mm256_add_epi32(a, b);
}
// Return the even, or the odd, bytes of each lane, sign-extended to pairs of 16-bit integers.
inline Words EvenBytes(Words bytes) {
  return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
}
inline Words OddBytes(Words bytes) {
  return _mm256_srai_epi16(bytes, 8);
}
// Multiplies 16-bit integers and adds the two products of each lane.
inline Words MulAddPairs(Words a, Words b) {
  return _mm256_madd_epi16(a, b);
}

// Operations on pairs of adjacent lanes. LoadTwice: the first min(count, kLanes / 2) elements of p,
// each in both lanes of a pair. SwapPairs: exchanges the lanes of each pair. MulSubAdd: a * b - c
// in even lanes, a * b + c in odd lanes.
inline Floats LoadTwice(const float* p, int64_t count) {
  const Floats values = Load(p, FirstLanes(count < kLanes / 2 ? count : kLanes / 2));
  return _mm256_permutevar8x32_ps(values, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
inline Floats SwapPairs(Floats v) {
  return _mm256_permute_ps(v, 0xB1);
}
inline Floats MulSubAdd(Floats a, Floats b, Floats c) {
  return _mm256_fmaddsub_ps(a, b, c);
}

// Loads the 2 * kLanes elements at p: even-numbered ones to `first`, odd-numbered ones to `second`.
inline void LoadPairs(const float* p, Floats& first, Floats& second) {
  const Floats a = Load(p), b = Load(p + kLanes);
  const Floats low = _mm256_permute2f128_ps(a, b, 0x20);
  const Floats high = _mm256_permute2f128_ps(a, b, 0x31);
  first = _mm256_shuffle_ps(low, high, 0x88);
  second = _mm256_shuffle_ps(low, high, 0xDD);
}

// Converts 16 E4M3 codes to BF16 bits: shifts the mantissa and changes the exponent's bias.
// Subnormal numbers and NaN are looked up in a table.
constexpr int kE4M3Codes = 16;
inline void DecodeE4M3Codes(const uint8_t* codes, uint16_t* bf16) {
  const __m256i wide =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
  const __m256i normal =
      _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), _mm256_set1_epi16(0x3C00));
  // Bytes 2 m and 2 m + 1 of the table contain the number of magnitude m.
  const __m256i subnormals = _mm256_broadcastsi128_si256(
      _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
  const __m256i places = _mm256_add_epi16(_mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)),
                                          _mm256_set1_epi16(0x0100));
  const __m256i subnormal = _mm256_shuffle_epi8(subnormals, places);
  const __m256i is_normal = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(7));
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7F));
  __m256i bits = _mm256_blendv_epi8(subnormal, normal, is_normal);
  bits = _mm256_blendv_epi8(bits, _mm256_set1_epi16(0x7FC0), is_nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bf16), _mm256_or_si256(bits, sign));
}

// v * 2^n for integer n in [-252, 254], given as a float. In two steps, so that a result may be
// subnormal.
inline Floats ScaleByPowerOfTwo(Floats v, Floats n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(whole, 1);
  const __m256i second = _mm256_sub_epi32(whole, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const Floats a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const Floats b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return Mul(Mul(v, a), b);
}
// v * 2^n for integer n, given as a float; only if neither v nor the result is subnormal or
// infinite.
inline Floats AddToExponent(Floats v, Floats n) {
  const __m256i exponents = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponents));
}
inline Floats RoundToWhole(Floats v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Return the sum or the maximum of all lanes, always computed in the same order.
inline float SumLanes(Floats v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline float MaxLane(Floats v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

}  // namespace
}  // namespace sluice::kernels
