#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

namespace sluice::kernels {
namespace {

// The first and third, and the second and fourth, of four bytes as 16-bit numbers: products of
// 8-bit numbers summed in pairs fit 32 bits.
struct WordPairs {
  Words even;
  Words odd;
};
using Weights = WordPairs;
using Inputs = WordPairs;

inline WordPairs WeightsOf(Words bytes) {
  return {_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8), _mm512_srai_epi16(bytes, 8)};
}
inline WordPairs InputsOf(uint32_t bytes) {
  return WeightsOf(_mm512_set1_epi32(static_cast<int>(bytes)));
}
inline Words Dot(Words sums, const WordPairs& w, const WordPairs& x) {
  return _mm512_add_epi32(
      sums, _mm512_add_epi32(_mm512_madd_epi16(w.even, x.even), _mm512_madd_epi16(w.odd, x.odd)));
}
inline Words StartSums(const int8_t* /*x*/, int64_t /*cols*/) {
  return _mm512_setzero_si512();
}
inline Floats ToFloats(Words sums) {
  return _mm512_cvtepi32_ps(sums);
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx512 {

// 32 registers hold 4 x 4 sums, four pairs of weights and one of inputs.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<4, 4>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx512
