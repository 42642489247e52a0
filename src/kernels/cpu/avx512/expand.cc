// Expands codes of narrow formats to lines of BF16 pairs; order of the codes: panel_layout.h.
//
// All values are exact in BF16, so the upper half of an F32 is its BF16, whatever its lower half
// would round to.
#include <immintrin.h>

#include "kernels/cpu/avx512/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::avx512 {
namespace {

constexpr int64_t kStepBytes8 = 512;  // of codes of 8 bits
constexpr int64_t kStepBytes4 = 256;  // of codes of 4 bits
constexpr int64_t kStepBytes = 1024;  // of BF16
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kPanelRows = 16;

inline __m512i Load(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

// The pairs (first, second) of F32 numbers as pairs of BF16.
inline __m512i Pairs(__m512 first, __m512 second) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                         _mm512_castps_si512(second));
}

// E4M3 codes in the upper bytes of words to BF16; `codes`: the same in the lower bytes, with
// anything above. The numbers below 2^-6 come from a table by what they differ from the others'
// formula, to which every code of an exponent of zero looks like 2^-7 * 1.mmm. NaN is not treated.
inline __m512i Bf16OfE4M3(__m512i upper, __m512i codes, __m512i subnormals) {
  const __m512i shifted =
      _mm512_and_si512(_mm512_srai_epi16(upper, 4), _mm512_set1_epi16(static_cast<short>(0x87F0)));
  const __m512i normal = _mm512_add_epi16(shifted, _mm512_set1_epi16(120 << 7));
  const __mmask32 is_subnormal = _mm512_testn_epi16_mask(upper, _mm512_set1_epi16(0x7800));
  return _mm512_mask_add_epi16(normal, is_subnormal, normal,
                               _mm512_permutexvar_epi16(codes, subnormals));
}

// BF16(m * 2^-9) - BF16(2^-7 * (1 + m / 8)) for m = 0 to 7, four times.
struct SubnormalTable {
  alignas(64) short words[32] = {};
  constexpr SubnormalTable() {
    constexpr int kBf16[8] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
    for (int i = 0; i < 32; ++i)
      words[i] = static_cast<short>(kBf16[i % 8] - (120 << 7) - (i % 8) * 16);
  }
};
constexpr SubnormalTable kSubnormals;

// The same with fewer instructions, but one on the port of the permutations.
inline __m512i ShuffledPairs(__m512 first, __m512 second) {
  const __m512i upper_halves =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(second), 0x3333333333333333,
                                  _mm512_castps_si512(first), upper_halves);
}

// One vector of 4-bit codes times the scales of its rows: four lines.
inline void ExpandWords4(__m512i words, __m512 numbers, __m512 scales, uint8_t* lines) {
  const auto value = [&](__m512i codes) __attribute__((always_inline)) {
    return _mm512_mul_ps(_mm512_permutexvar_ps(codes, numbers), scales);
  };
  const __m512i second = _mm512_srli_epi32(words, 16);
  _mm512_storeu_si512(lines, ShuffledPairs(value(words), value(second)));
  _mm512_storeu_si512(lines + kVectorBytes, ShuffledPairs(value(_mm512_srli_epi32(words, 4)),
                                                          value(_mm512_srli_epi32(words, 20))));
  _mm512_storeu_si512(lines + 2 * kVectorBytes, ShuffledPairs(value(_mm512_srli_epi32(words, 8)),
                                                              value(_mm512_srli_epi32(words, 24))));
  _mm512_storeu_si512(lines + 3 * kVectorBytes, ShuffledPairs(value(_mm512_srli_epi32(words, 12)),
                                                              value(_mm512_srli_epi32(words, 28))));
}

inline __m512 NumbersOfE2M1() {
  return _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                        -2.0f, -3.0f, -4.0f, -6.0f);
}

inline __m512i Bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Scales of E4M3 in F16, where the same bits stand for 2^-8 of them, those below 2^-6 too.
inline __m512i HalvesOfE4M3(__m256i codes) {
  const __m512i in_top_byte = _mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 8);
  const __m512i halves = _mm512_and_si512(_mm512_srai_epi16(in_top_byte, 1),
                                          _mm512_set1_epi16(static_cast<short>(0xBFFF)));
  const __m512i magnitudes = _mm512_and_si512(halves, _mm512_set1_epi16(0x7FFF));
  return _mm512_mask_mov_epi16(halves,
                               _mm512_cmpeq_epi16_mask(magnitudes, _mm512_set1_epi16(0x7F << 7)),
                               _mm512_set1_epi16(0x7E00));  // NaN
}

inline __m512 ScalesOfE8M0(__m512i codes) {
  __m512i bits = _mm512_slli_epi32(codes, 23);
  bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(codes, codes),
                               _mm512_set1_epi32(0x00400000));
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(0xFF)),
                               _mm512_set1_epi32(0x7FC00000));
  return _mm512_castsi512_ps(bits);
}

// Whether one of the scales makes a product of a number other than zero that is not a normal number
// of BF16, or is NaN: those outside of 2^-125 to 2^125.
inline bool HaveUnusualE8M0(__m128i codes) {
  const __m128i above_least = _mm_sub_epi8(codes, _mm_set1_epi8(2));
  const __m128i limit = _mm_set1_epi8(static_cast<char>(251));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(above_least, limit), above_least)) != 0;
}

// One step with any scales.
__attribute__((noinline)) void ExpandUnusualMxfp4(const uint8_t* codes, const uint8_t* scales,
                                                  uint8_t* lines) {
  const __m512 numbers = NumbersOfE2M1();
  const __m512 group_scales = ScalesOfE8M0(Bytes(scales));
  for (int i = 0; i < 4; ++i)
    ExpandWords4(Load(codes + i * kVectorBytes), numbers, group_scales,
                 lines + 4 * i * kVectorBytes);
}

// The numbers of E2M1 in BF16, twice: the index's bit above the code does not matter.
struct E2M1Table {
  alignas(64) uint16_t words[32] = {};
  constexpr E2M1Table() {
    constexpr uint16_t kMagnitudes[8] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
    for (int i = 0; i < 32; ++i)
      words[i] = static_cast<uint16_t>(kMagnitudes[i % 8] | (i & 8) << 12);
  }
};
constexpr E2M1Table kBf16OfE2M1;

// BF16(i - 16) for i = 0 to 31.
struct IntegerTable {
  alignas(64) uint16_t words[32] = {};
  constexpr IntegerTable() {
    for (int i = 0; i < 32; ++i) {
      const int magnitude = i < 16 ? 16 - i : i - 16;
      int exponent = 0;
      while (magnitude >> (exponent + 1) != 0) ++exponent;
      const int mantissa = (magnitude << 7 >> exponent) & 0x7F;
      if (magnitude != 0)
        words[i] = static_cast<uint16_t>((i < 16) << 15 | (127 + exponent) << 7 | mantissa);
    }
  }
};
constexpr IntegerTable kBf16OfIntegers;

}  // namespace

void ExpandI8(const uint8_t* codes, const uint8_t* /*scales*/, int64_t steps, uint8_t* lines) {
  const auto value = [](__m512i in_top_byte) __attribute__((always_inline)) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(in_top_byte, 24));
  };
  for (int64_t i = 0; i < steps * kStepBytes8; i += kVectorBytes) {
    const __m512i words = Load(codes + i);
    _mm512_storeu_si512(lines + 2 * i, Pairs(value(_mm512_slli_epi32(words, 24)),
                                             value(_mm512_slli_epi32(words, 16))));
    _mm512_storeu_si512(lines + 2 * i + kVectorBytes,
                        Pairs(value(_mm512_slli_epi32(words, 8)), value(words)));
  }
}

void ExpandF8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  const __m512i subnormals = _mm512_load_si512(kSubnormals.words);
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t* from = codes + step * kStepBytes8;
    uint8_t* to = lines + step * kStepBytes;
    __m512i largest = _mm512_setzero_si512();  // of the magnitudes of the step's codes
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m512i words = Load(from + i * kVectorBytes);
      largest = _mm512_max_epu8(largest, _mm512_and_si512(words, _mm512_set1_epi8(0x7F)));
      _mm512_storeu_si512(to + 2 * i * kVectorBytes,
                          Bf16OfE4M3(_mm512_slli_epi16(words, 8), words, subnormals));
      _mm512_storeu_si512(to + (2 * i + 1) * kVectorBytes,
                          Bf16OfE4M3(words, _mm512_srli_epi16(words, 8), subnormals));
    }
    if (_mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(0x7F)) != 0) [[unlikely]]
      reference::ExpandF8(from, scales, 1, to);  // There is a NaN.
  }
}

void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  const __m512 numbers = _mm512_mul_ps(NumbersOfE2M1(), _mm512_set1_ps(0x1p8f));
  for (int64_t step = 0; step < steps; ++step) {
    const __m512i both = HalvesOfE4M3(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales + step * 2 * kPanelRows)));
    const __m512 group_scales[2] = {_mm512_cvtph_ps(_mm512_castsi512_si256(both)),
                                    _mm512_cvtph_ps(_mm512_extracti64x4_epi64(both, 1))};
    const uint8_t* from = codes + step * kStepBytes4;
    uint8_t* to = lines + step * kStepBytes;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      ExpandWords4(Load(from + i * kVectorBytes), numbers, group_scales[i / 2],
                   to + 4 * i * kVectorBytes);
    }
  }
}

// A scale is a power of two, so its exponent is added to those of the numbers but zero.
void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  const __m512i numbers = _mm512_load_si512(kBf16OfE2M1.words);
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t* from = codes + step * kStepBytes4;
    const uint8_t* step_scales = scales + step * kPanelRows;
    uint8_t* to = lines + step * kStepBytes;
    const __m128i scale_codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step_scales));
    if (HaveUnusualE8M0(scale_codes)) [[unlikely]] {
      ExpandUnusualMxfp4(from, step_scales, to);
      continue;
    }
    const __m512i exponents = _mm512_slli_epi32(
        _mm512_sub_epi32(_mm512_cvtepu8_epi32(scale_codes), _mm512_set1_epi32(127)), 23);
    const __m512i both = _mm512_or_si512(exponents, _mm512_srli_epi32(exponents, 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i words = Load(from + i * kVectorBytes);
      const auto line = [&](int j, __m512i indices) __attribute__((always_inline)) {
        const __m512i number = _mm512_permutexvar_epi16(indices, numbers);
        const __mmask32 is_not_zero =
            _mm512_test_epi16_mask(words, _mm512_set1_epi16(static_cast<short>(7 << 4 * j)));
        _mm512_storeu_si512(to + (4 * i + j) * kVectorBytes,
                            _mm512_mask_add_epi16(number, is_not_zero, number, both));
      };
      line(0, words);
      line(1, _mm512_srli_epi16(words, 4));
      line(2, _mm512_srli_epi16(words, 8));
      line(3, _mm512_srli_epi16(words, 12));
    }
  }
}

// A code less its zero point, and 16 more, is the place of the difference in the table.
void ExpandInt4(const uint8_t* codes, const uint8_t* zero_points, int64_t steps, uint8_t* lines) {
  constexpr int kZero = 8;  // where there are none
  const __m512i numbers = _mm512_load_si512(kBf16OfIntegers.words);
  __m512i offsets = _mm512_set1_epi16(16 - kZero);
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t* from = codes + step * kStepBytes4;
    uint8_t* to = lines + step * kStepBytes;
    if (zero_points != nullptr) {
      const __m512i zeros = Bytes(zero_points + step * kPanelRows);
      offsets = _mm512_sub_epi16(_mm512_set1_epi16(16),
                                 _mm512_or_si512(zeros, _mm512_slli_epi32(zeros, 16)));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i words = Load(from + i * kVectorBytes);
      const auto line = [&](int j, __m512i shifted) __attribute__((always_inline)) {
        const __m512i places =
            _mm512_add_epi16(_mm512_and_si512(shifted, _mm512_set1_epi16(15)), offsets);
        _mm512_storeu_si512(to + (4 * i + j) * kVectorBytes,
                            _mm512_permutexvar_epi16(places, numbers));
      };
      line(0, words);
      line(1, _mm512_srli_epi16(words, 4));
      line(2, _mm512_srli_epi16(words, 8));
      line(3, _mm512_srli_epi16(words, 12));
    }
  }
}

}  // namespace sluice::kernels::avx512
