#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/avx2/simd.h"

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
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}
inline WordPairs InputsOf(uint32_t bytes) {
  return WeightsOf(_mm256_set1_epi32(static_cast<int>(bytes)));
}
inline Words Dot(Words sums, const WordPairs& w, const WordPairs& x) {
  return _mm256_add_epi32(
      sums, _mm256_add_epi32(_mm256_madd_epi16(w.even, x.even), _mm256_madd_epi16(w.odd, x.odd)));
}
inline Words StartSums(const int8_t* /*x*/, int64_t /*cols*/) {
  return _mm256_setzero_si256();
}
inline Floats ToFloats(Words sums) {
  return _mm256_cvtepi32_ps(sums);
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/cpu/linear_i8_inl.h"

namespace sluice::kernels::avx2 {

// 16 registers hold 3 x 2 sums, two pairs of weights and one of inputs.
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end) {
  MultiplyI8Range<3, 1>(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx2
