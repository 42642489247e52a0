// linear with 8-bit integers by dot products of four bytes in 256 bits. The file that includes this
// defines SLUICE_VPDPBUSD, the instruction in one of its encodings, and SLUICE_LINEAR_I8, the
// function's name.
#pragma once

#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/avx2_vnni/kernels.h"

namespace sluice::kernels {
namespace {

// As with AVX-512 (avx512_vnni/linear_i8.cc): the weights plus 128 are what is unsigned.
using Weights = Words;
using Inputs = Words;
typedef int Sums __attribute__((vector_size(32)));

inline Words WeightsOf(Words bytes) {
  return _mm256_xor_si256(bytes, _mm256_set1_epi8(static_cast<char>(0x80)));
}
inline Inputs InputsAt(const int8_t* x) {
  int bytes;
  __builtin_memcpy(&bytes, x, 4);
  return _mm256_set1_epi32(bytes);
}
// Not an intrinsic, whose encoding would follow from what else the compiler may use.
inline Sums Dot(Sums sums, Words w, Words x) {
  asm(SLUICE_VPDPBUSD " %2, %1, %0" : "+x"(sums) : "x"(w), "x"(x));
  return sums;
}
inline int32_t Correction(const int8_t* x, int64_t cols) {
  // Several, or each product would wait for the one before.
  Sums sums[4] = {};
  const Words ones = _mm256_set1_epi8(1);
  int64_t k = 0;
  for (; k + 128 <= cols; k += 128) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[i] = Dot(sums[i], ones, LoadWords(x + k + 32 * i));
  }
  int8_t rest[128] = {};
  __builtin_memcpy(rest, x + k, static_cast<size_t>(cols - k));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sums[i] = Dot(sums[i], ones, LoadWords(rest + 32 * i));
  const Sums all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  int sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += all[lane];
  return -128 * sum;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx2_vnni {

// 16 registers hold 6 x 2 sums, two weights, one input and what makes weights unsigned; few rows
// take more panels, so that enough sums are in flight.
void SLUICE_LINEAR_I8(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                      int64_t panel_begin, int64_t panel_end) {
  if (row_end - row_begin == 1)
    MultiplyI8Range<1, 3>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyI8Range<6, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx2_vnni
