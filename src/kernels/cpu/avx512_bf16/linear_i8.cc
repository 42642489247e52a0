// linear with VNNI (vpdpbusd), which every CPU with BF16 dot products has.
#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/avx512_bf16/kernels.h"

namespace sluice::kernels {
namespace {

// The instruction multiplies unsigned by signed bytes: it is given the weights plus 128, and the
// sums begin with what that adds, -128 times the sum of the inputs. All is modulo 2^32, so only the
// result must fit.
using Weights = Words;
using Inputs = Words;
typedef int Sums __attribute__((vector_size(64)));

inline Words WeightsOf(Words bytes) {
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(0x80)));
}
inline Words InputsOf(uint32_t bytes) {
  return _mm512_set1_epi32(static_cast<int>(bytes));
}
inline Sums Dot(Sums sums, Words w, Words x) {
  return (Sums)_mm512_dpbusd_epi32((Words)sums, w, x);
}
inline Sums StartSums(const int8_t* x, int64_t cols) {
  Words sums = _mm512_setzero_si512();
  for (int64_t k = 0; k < cols; k += 64) {
    const __mmask64 mask = cols - k >= 64 ? ~__mmask64{0} : (__mmask64{1} << (cols - k)) - 1;
    sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_maskz_loadu_epi8(mask, x + k));
  }
  return (Sums)_mm512_set1_epi32(-128 * _mm512_reduce_add_epi32(sums));
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx512_bf16 {

// 32 registers hold 6 x 4 sums, four weights and one input.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<6, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512_bf16
