// linear with 8-bit integers by dot products of four bytes, in 256-bit registers. The file that
// includes this defines SLUICE_VPDPBUSD, the instruction in one of its encodings, and
// SLUICE_LINEAR_I8, the function's name.
#pragma once

#include "kernels/cpu/avx2/simd.h"
#include "kernels/cpu/avx2_vnni/kernels.h"

namespace sluice::kernels {
namespace {

typedef int Sums __attribute__((vector_size(sizeof(Words))));
// Not an intrinsic, because the compiler would choose the encoding according to the other
// instructions that it may use.
inline Sums Dot(Sums sums, Words w, Words x) {
  asm(SLUICE_VPDPBUSD " %2, %1, %0" : "+x"(sums) : "x"(w), "x"(x));
  return sums;
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/vnni_inl.h"

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx2_vnni {

// 16 registers contain 6 x 2 sums, two weights, one input and the constant that makes weights
// unsigned. With few rows, more panels are used, so that enough sums are in flight.
void SLUICE_LINEAR_I8(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                      int64_t panel_begin, int64_t panel_end) {
  if (row_end - row_begin == 1)
    MultiplyI8Range<1, 3>(args, row_begin, row_end, panel_begin, panel_end);
  else
    MultiplyI8Range<6, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx2_vnni
