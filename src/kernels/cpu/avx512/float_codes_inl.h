// Converts codes of narrow formats to F32 in 512-bit registers (linear_codes_inl.h lists the
// members of a class); order of the codes in a word: panel_layout.h.
#pragma once

#include "kernels/cpu/avx512/codes_inl.h"
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/linear_codes_inl.h"

namespace sluice::kernels::avx512 {
namespace {

struct I8Floats : PlainCodes {
  static constexpr int kInputs = 4;
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(Words words, NoGroupScales /*scales*/) {
    const Words top = kInput == 3 ? words : _mm512_slli_epi32(words, 24 - 8 * kInput);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
  }
};

// E4M3 codes. Prepare does not handle NaN; PrepareAny does.
struct F8Floats : PairCodes {
  static constexpr bool kHasUnusual = true;
  struct Unusual {
    __attribute__((always_inline)) void Add(Words words) { codes.Load(words); }
    __attribute__((always_inline)) bool Found() const { return codes.IsUnusual(nullptr, 0); }
    F8Codes<Among::kManyProducts> codes;
  };

  __attribute__((always_inline)) static Ready Prepare(Words words) {
    const F8Codes<Among::kManyProducts> codes;
    return {{codes.Line(0, words, {}), codes.Line(1, words, {})}};
  }
  __attribute__((always_inline)) static Ready PrepareAny(Words words) {
    const auto with_nan = [](Words pairs, Words upper) __attribute__((always_inline)) {
      const Words magnitudes = _mm512_and_si512(upper, _mm512_set1_epi16(0x7F00));
      const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitudes, _mm512_set1_epi16(0x7F00));
      return _mm512_mask_mov_epi16(pairs, is_nan, _mm512_set1_epi16(0x7FC0));
    };
    const Ready ready = Prepare(words);
    return {
        {with_nan(ready.pairs[0], _mm512_slli_epi16(words, 8)), with_nan(ready.pairs[1], words)}};
  }
};

// Converts codes to F32 through the BF16 pairs of `Format` (codes_inl.h).
template <typename Format>
struct E2M1Floats : PlainCodes {
  static constexpr int kInputs = 8, kGroupInputs = Format::kScaleVectors * kInputs;
  static constexpr bool kHasScales = true;
  using Scales = typename Format::Scales;
  static Scales ScalesAt(const uint8_t* scales) { return Format().ScalesOf(scales); }
  static bool AreUsual(const uint8_t* scales, int64_t count) {
    return !Format().IsUnusual(scales, count);
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(Words words, const Scales& scales) {
    return NumbersOfPairs<kInput>(Format().Line(kInput / 2, words, scales));
  }
};
using Nvfp4Floats = E2M1Floats<Nvfp4Codes<Among::kManyProducts>>;
using Mxfp4Floats = E2M1Floats<Mxfp4Codes<Among::kManyProducts>>;

// Looks up the codes of input kInput in `numbers`.
template <int kInput>
inline Floats LookUp(Words words, Floats numbers) {
  constexpr int kPlace = kInput / 2 + kInput % 2 * 4;
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * kPlace), numbers);
}

struct Int4Floats : PlainCodes {
  static constexpr int kInputs = 8;
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(Words words, NoGroupScales /*scales*/) {
    return LookUp<kInput>(words,
                          _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct ZeroPointInt4Floats : PlainCodes {
  static constexpr int kInputs = 8;
  static constexpr bool kHasScales = true;
  using Scales = Floats;  // the zero points
  static Floats ScalesAt(const uint8_t* zero_points) { return ToFloats(Bytes(zero_points)); }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(Words words, Floats zeros) {
    const Floats codes =
        LookUp<kInput>(words, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    return Sub(codes, zeros);
  }
};

}  // namespace
}  // namespace sluice::kernels::avx512
