// linear with 8-bit integers by dot products of four bytes (vpdpbusd).
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/avx512_vnni/kernels.h"

namespace sluice::kernels {
namespace {

// The instruction multiplies unsigned by signed bytes: it is given the weights plus 128, and what
// that adds, 128 times the sum of the inputs, is taken away in the end. All is modulo 2^32, so only
// the result must fit.
using Weights = Words;
using Inputs = Words;
typedef int Sums __attribute__((vector_size(64)));

inline Words WeightsOf(Words bytes) {
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(0x80)));
}
inline Inputs InputsAt(const int8_t* x) {
  int bytes;
  __builtin_memcpy(&bytes, x, 4);
  return _mm512_set1_epi32(bytes);
}
inline Sums Dot(Sums sums, Words w, Words x) {
  return (Sums)_mm512_dpbusd_epi32((Words)sums, w, x);
}
inline int32_t Correction(const int8_t* x, int64_t cols) {
  // Several, or each product would wait for the one before.
  Words sums[4] = {};
  for (int64_t k = 0; k < cols; k += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int64_t left = cols - k - 64 * i;
      const __mmask64 mask = left >= 64  ? ~__mmask64{0}
                             : left <= 0 ? __mmask64{0}
                                         : (__mmask64{1} << left) - 1;
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi8(1),
                                    _mm512_maskz_loadu_epi8(mask, x + k + 64 * i));
    }
  }
  const Words all =
      _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  return -128 * _mm512_reduce_add_epi32(all);
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx512_vnni {

// 32 registers hold 6 x 4 sums, four weights and one input.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<6, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_vnni
