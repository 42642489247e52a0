// The softmax of a row of attention scores, with weights rounded to BF16. For files compiled with
// the instructions of AVX-512 BF16.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/soft_cap_inl.h"

namespace sluice::kernels {
namespace {

inline __m256i RoundedBits(Floats values) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values));
}

// Returns 2^x for x <= 0, with a relative error of 5e-5, far below the error of rounding to BF16;
// exactly 1 for 0, 0 for x below -150, NaN for NaN.
inline Floats PowerOfTwo(Floats x) {
  // This order of the operands propagates NaN.
  const Floats power = Max(Set(-200.0f), x);
  const Floats whole = RoundToWhole(power);
  const Floats r = Sub(power, whole);
  Floats p = Set(9.6181291e-3f);  // Taylor polynomial: ln(2)^k / k!
  p = MulAdd(p, r, Set(5.5504109e-2f));
  p = MulAdd(p, r, Set(2.4022651e-1f));
  p = MulAdd(p, r, Set(6.9314718e-1f));
  p = MulAdd(p, r, Set(1.0f));
  return ScaleByPowerOfTwo(p, whole);
}

// Turns the scores of a row that sees [start, limit) into BF16 weights, which overwrite the first
// half of the scores.
inline void Softmax(float* scores, int start, int limit, float soft_cap, float& row_largest,
                    float& row_sum) {
  constexpr int kStep = 2 * kLanes;
  const int first = start / kStep * kStep;
  const int end = (limit + kStep - 1) / kStep * kStep;
  if (soft_cap > 0) CapScores(scores, start / kLanes * kLanes, limit, soft_cap);
  // Positions that the row does not see get a weight of zero.
  const Floats lowest = Set(-__builtin_inff());
  const auto hide = [&](int i) __attribute__((always_inline)) {
    const Mask seen = AndNot(FirstLanes(start - i), FirstLanes(limit - i));
    Store(scores + i, Select(seen, Load(scores + i), lowest));
  };
  if (start > first) {
    hide(first);
    hide(first + kLanes);
  }
  if (limit < end) {
    hide(end - kStep);
    hide(end - kLanes);
  }
  Floats largest = lowest, largest_of_others = lowest;
  for (int i = first; i < end; i += kStep) {
    largest = Max(Load(scores + i), largest);
    largest_of_others = Max(Load(scores + i + kLanes), largest_of_others);
  }
  row_largest = MaxLane(Max(largest, largest_of_others));
  const Floats log2_e = Set(1.44269504088896341f);
  const Floats offset = Mul(Set(row_largest), log2_e);
  auto* weights = reinterpret_cast<uint16_t*>(scores);
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F80));
  Floats sum = Zero();
  for (int i = first; i < end; i += kStep) {
    const Floats low = PowerOfTwo(_mm512_fmsub_ps(Load(scores + i), log2_e, offset));
    const Floats high = PowerOfTwo(_mm512_fmsub_ps(Load(scores + i + kLanes), log2_e, offset));
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(weights + i, reinterpret_cast<__m512i>(rounded));
    sum = _mm512_dpbf16_ps(sum, rounded, ones);
  }
  row_sum = SumLanes(sum);
}

}  // namespace
}  // namespace sluice::kernels
