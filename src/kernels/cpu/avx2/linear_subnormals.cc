// linear for CPUs that compute with subnormal F32 numbers at full speed. E4M3 codes then need no
// special cases: shifted into an F32 number, a code is its number times 2^-120, also below 2^-6,
// where F32 is subnormal as well.
#include "kernels/cpu/avx2/simd.h"

#include "kernels/cpu/avx2/float_codes_inl.h"
#include "kernels/cpu/avx2/kernels.h"

namespace sluice::kernels::avx2 {
namespace {

static_assert(kFewRows == kCodeRows);
// The sums of a unit of few rows fit in the memory of a chunk.
static_assert(kFewRows * kFewRowsPanels <= kChunkRows * kMaxPanelsPerUnit);

// Inputs are multiplied by 2^100, so sums are 2^-20 times as large. Usual magnitudes are:
// - inputs: zero, or 2^-60 to 2^24;
// - sums before a segment: zero, or 2^-60 to 2^50.
// With usual magnitudes, all sums are multiples of 2^-76. Multiplied by 2^-20, nonzero sums are at
// least 2^-96, so they are never subnormal.
struct F8Subnormals : PlainCodes {
  static constexpr int kInputs = 4;
  static constexpr float kTimes = 0x1p-120f;
  static constexpr float kInputTimes = 0x1p100f;
  static constexpr bool kNeedsUsual = true;
  static bool AreUsualInputs(const float* inputs, int64_t count) {
    return AreWithin<-60, 24>(inputs, count);
  }
  static bool AreUsualSums(const float* sums, int64_t count) {
    return AreWithin<-60, 50>(sums, count);
  }

  // NaN.
  struct Exceptions {
    __attribute__((always_inline)) void Add(Words words) {
      largest = _mm256_max_epu8(largest, _mm256_and_si256(words, _mm256_set1_epi8(0x7F)));
    }
    __attribute__((always_inline)) bool Found() const {
      return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7F))) != 0;
    }
    Words largest = _mm256_setzero_si256();
  };

  // Pairs of 16-bit words, each with a code in bits 4 to 11 and copies of its sign above.
  struct Ready {
    Words pairs[2];
  };
  __attribute__((always_inline)) static Ready Prepare(Words words) {
    return {{_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 4), _mm256_srai_epi16(words, 4)}};
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const Ready& ready,
                                                         NoGroupScales /*scales*/) {
    Words words = ready.pairs[kInput / 2];
    if constexpr (kInput % 2 == 0) words = _mm256_slli_epi32(words, 16);
    return _mm256_castsi256_ps(AndBits<0x87F00000>(words));
  }
};

}  // namespace

void LinearBf16Subnormals(const LinearArgs& args, int64_t row_begin, int64_t row_end,
                          int64_t panel_begin, int64_t panel_end) {
  const int64_t rows = row_end - row_begin;
  LinearFunction* function = LinearBf16;
  if (args.expand == ExpandF8 && args.cols % kStepInputs == 0 && rows <= kCodeRows)
    function = FewRowsFunction<F8Subnormals>(rows);
  function(args, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace sluice::kernels::avx2
