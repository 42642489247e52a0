// The vector operations of the shared kernels (cpu/*_inl.h), for Advanced SIMD.
//
// Everything is in an unnamed namespace, and nothing of the standard library is used. Otherwise,
// the linker might choose a copy of an inline function from a file compiled for more instructions,
// and the whole program would need a CPU that has them.
#pragma once

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace sluice::kernels {
namespace {

constexpr int kLanes = 4;
using Floats = float32x4_t;
using Words = int32x4_t;
using Mask = uint32x4_t;  // all bits of a lane, or none

inline Mask FirstLanes(int64_t count) {
  const int32x4_t lane = {0, 1, 2, 3};
  return vcltq_s32(lane, vdupq_n_s32(count >= kLanes ? kLanes : static_cast<int>(count)));
}
inline int CountLanes(Mask mask) {
  return static_cast<int>(vaddvq_u32(vshrq_n_u32(mask, 31)));
}
inline bool Any(Mask mask) {
  return vmaxvq_u32(mask) != 0;
}
inline bool All(Mask mask) {
  return vminvq_u32(mask) != 0;
}

inline Floats Zero() {
  return vdupq_n_f32(0);
}
inline Floats Set(float value) {
  return vdupq_n_f32(value);
}
inline Floats Load(const float* p) {
  return vld1q_f32(p);
}
inline void Store(float* p, Floats v) {
  vst1q_f32(p, v);
}
inline Words LoadWords(const void* p) {
  return vld1q_s32(static_cast<const int32_t*>(p));
}
// The masks of loads and stores select the first lanes. A load sets the other lanes to zero.
inline Words LoadWords(const void* p, Mask mask) {
  if (All(mask)) return LoadWords(p);
  int32_t buffer[kLanes] = {};
  __builtin_memcpy(buffer, p, static_cast<size_t>(CountLanes(mask)) * 4);
  return vld1q_s32(buffer);
}
inline Floats Load(const float* p, Mask mask) {
  return vreinterpretq_f32_s32(LoadWords(p, mask));
}
inline void Store(float* p, Floats v, Mask mask) {
  if (All(mask)) return Store(p, v);
  float buffer[kLanes];
  Store(buffer, v);
  for (int i = 0; i < CountLanes(mask); ++i) p[i] = buffer[i];
}

inline Floats Add(Floats a, Floats b) {
  return vaddq_f32(a, b);
}
inline Floats Sub(Floats a, Floats b) {
  return vsubq_f32(a, b);
}
inline Floats Mul(Floats a, Floats b) {
  return vmulq_f32(a, b);
}
inline Floats Div(Floats a, Floats b) {
  return vdivq_f32(a, b);
}
inline Floats MulAdd(Floats a, Floats b, Floats c) {
  return vfmaq_f32(c, a, b);
}  // a * b + c
inline Floats NegMulAdd(Floats a, Floats b, Floats c) {
  return vfmsq_f32(c, a, b);
}  // c - a * b
// Returns b if either is NaN. The instructions for maximum and minimum would return NaN.
inline Floats Max(Floats a, Floats b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
inline Floats Min(Floats a, Floats b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
inline Mask Greater(Floats a, Floats b) {
  return vcgtq_f32(a, b);
}
inline Mask Equal(Floats a, Floats b) {
  return vceqq_f32(a, b);
}
inline Mask IsNan(Floats a) {
  return vmvnq_u32(vceqq_f32(a, a));
}
inline Floats Select(Mask mask, Floats yes, Floats no) {
  return vbslq_f32(mask, yes, no);
}
inline Mask AndNot(Mask a, Mask b) {
  return vbicq_u32(b, a);
}  // ~a & b
inline Mask And(Mask a, Mask b) {
  return vandq_u32(a, b);
}

// Return the first, or the second, number of each 32-bit lane's pair of BF16 numbers, as F32.
inline Floats FirstOfPair(Words pairs) {
  return vreinterpretq_f32_s32(vshlq_n_s32(pairs, 16));
}
inline Floats SecondOfPair(Words pairs) {
  return vreinterpretq_f32_s32(vandq_s32(pairs, vdupq_n_s32(static_cast<int>(0xFFFF0000u))));
}

inline Floats LoadBf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
inline Floats LoadBf16(const uint16_t* p, Mask mask) {
  uint16_t buffer[kLanes] = {};
  __builtin_memcpy(buffer, p, static_cast<size_t>(CountLanes(mask)) * 2);
  return LoadBf16(buffer);
}

// Rounds to nearest even; NaN stays NaN. Same as sluice::ToBFloat16.
inline uint16x4_t Bf16Of(Floats v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(IsNan(v), quiet, rounded), 16);
}
inline void StoreBf16(uint16_t* p, Floats v) {
  vst1_u16(p, Bf16Of(v));
}
inline void StoreBf16(uint16_t* p, Floats v, Mask mask) {
  if (All(mask)) return StoreBf16(p, v);
  uint16_t buffer[kLanes];
  StoreBf16(buffer, v);
  for (int i = 0; i < CountLanes(mask); ++i) p[i] = buffer[i];
}

// Integers in 32-bit lanes.
inline Words SetWords(int value) {
  return vdupq_n_s32(value);
}
inline Floats ToFloats(Words v) {
  return vcvtq_f32_s32(v);
}

// Operations on pairs of adjacent lanes. LoadTwice: the first min(count, kLanes / 2) elements of p,
// each in both lanes of a pair. SwapPairs: exchanges the lanes of each pair. MulSubAdd: a * b - c
// in even lanes, a * b + c in odd lanes.
inline Floats LoadTwice(const float* p, int64_t count) {
  const float32x2_t values = count >= 2 ? vld1_f32(p) : float32x2_t{p[0], 0};
  return vcombine_f32(vzip1_f32(values, values), vzip2_f32(values, values));
}
inline Floats SwapPairs(Floats v) {
  return vrev64q_f32(v);
}
inline Floats MulSubAdd(Floats a, Floats b, Floats c) {
  const uint32x4_t signs = {0x80000000u, 0, 0x80000000u, 0};
  return vfmaq_f32(vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c), signs)), a, b);
}

// Loads the 2 * kLanes elements at p: even-numbered ones to `first`, odd-numbered ones to `second`.
inline void LoadPairs(const float* p, Floats& first, Floats& second) {
  const float32x4x2_t pairs = vld2q_f32(p);
  first = pairs.val[0];
  second = pairs.val[1];
}

// Converts 16 E4M3 codes to BF16 bits: shifts the mantissa and changes the exponent's bias.
// Subnormal numbers and NaN are looked up in a table.
constexpr int kE4M3Codes = 16;
inline uint16x8_t Bf16OfE4M3(uint16x8_t codes) {
  const uint16x8_t magnitude = vandq_u16(codes, vdupq_n_u16(0x7F));
  const uint16x8_t sign = vshlq_n_u16(vandq_u16(codes, vdupq_n_u16(0x80)), 8);
  const uint16x8_t normal = vaddq_u16(vshlq_n_u16(magnitude, 4), vdupq_n_u16(0x3C00));
  // Bytes 2 m and 2 m + 1 of the table contain the number of magnitude m.
  const uint16x8_t subnormals = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
  const uint16x8_t places = vmlaq_n_u16(vdupq_n_u16(0x0100), magnitude, 0x0202);
  const uint16x8_t subnormal = vreinterpretq_u16_u8(
      vqtbl1q_u8(vreinterpretq_u8_u16(subnormals), vreinterpretq_u8_u16(places)));
  uint16x8_t bits = vbslq_u16(vcgtq_u16(magnitude, vdupq_n_u16(7)), normal, subnormal);
  bits = vbslq_u16(vceqq_u16(magnitude, vdupq_n_u16(0x7F)), vdupq_n_u16(0x7FC0), bits);
  return vorrq_u16(bits, sign);
}
inline void DecodeE4M3Codes(const uint8_t* codes, uint16_t* bf16) {
  const uint8x16_t bytes = vld1q_u8(codes);
  vst1q_u16(bf16, Bf16OfE4M3(vmovl_u8(vget_low_u8(bytes))));
  vst1q_u16(bf16 + 8, Bf16OfE4M3(vmovl_high_u8(bytes)));
}

// v * 2^n for integer n in [-252, 254], given as a float. In two steps, so that a result may be
// subnormal.
inline Floats ScaleByPowerOfTwo(Floats v, Floats n) {
  const int32x4_t whole = vcvtq_s32_f32(n);
  const int32x4_t first = vshrq_n_s32(whole, 1);
  const int32x4_t second = vsubq_s32(whole, first);
  const int32x4_t bias = vdupq_n_s32(127);
  const Floats a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(first, bias), 23));
  const Floats b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(second, bias), 23));
  return Mul(Mul(v, a), b);
}
// v * 2^n for integer n, given as a float; only if neither v nor the result is subnormal or
// infinite.
inline Floats AddToExponent(Floats v, Floats n) {
  const int32x4_t exponents = vshlq_n_s32(vcvtq_s32_f32(n), 23);
  return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(v), exponents));
}
inline Floats RoundToWhole(Floats v) {
  return vrndnq_f32(v);
}

// Return the sum or the maximum of all lanes, always computed in the same order.
inline float SumLanes(Floats v) {
  return vaddvq_f32(v);
}
inline float MaxLane(Floats v) {
  return vmaxvq_f32(v);
}

}  // namespace
}  // namespace sluice::kernels
