// Expands codes of narrow formats to lines of BF16 pairs; panel_layout.h defines the order of the
// codes.
//
// All values are exact in BF16, so the BF16 number is the upper half of the F32, without rounding.
// A vector holds the words of 8 rows: half of a panel's line.
#include <immintrin.h>

#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/avx2/words_inl.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::avx2 {
namespace {

constexpr int64_t kStepBytes8 = 512;  // bytes of 8-bit codes per step
constexpr int64_t kStepBytes4 = 256;  // bytes of 4-bit codes per step
constexpr int64_t kStepBytes = 1024;  // bytes of BF16 numbers per step
constexpr int64_t kLineBytes = 64;
constexpr int64_t kHalfLine = 32;
constexpr int64_t kPanelRows = 16;

inline __m256i Load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Stores pairs (first, second) of F32 numbers (exact in BF16) as pairs of BF16.
inline void StorePairs(uint8_t* p, __m256 first, __m256 second) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(first), 16),
                                      _mm256_castps_si256(second)));
}

// Converts E4M3 codes in the upper bytes of 16-bit words to BF16. `codes`: the same codes in the
// lower bytes; upper bytes arbitrary. The formula for normal numbers reads a code with a zero
// exponent as 2^-7 * 1.mmm; a table contains the corrections to add. NaN is not handled.
inline __m256i Bf16OfE4M3(__m256i upper, __m256i codes) {
  constexpr short kBase = 120 << 7;
  const __m256i differences = _mm256_broadcastsi128_si256(_mm_setr_epi16(
      -kBase, 0x3B00 - kBase - 0x10, 0x3B80 - kBase - 0x20, 0x3BC0 - kBase - 0x30,
      0x3C00 - kBase - 0x40, 0x3C20 - kBase - 0x50, 0x3C40 - kBase - 0x60, 0x3C60 - kBase - 0x70));
  const __m256i shifted =
      _mm256_and_si256(_mm256_srai_epi16(upper, 4), _mm256_set1_epi16(static_cast<short>(0x87F0)));
  const __m256i normal = _mm256_add_epi16(shifted, _mm256_set1_epi16(kBase));
  const __m256i is_subnormal = _mm256_cmpeq_epi16(
      _mm256_and_si256(upper, _mm256_set1_epi16(0x7800)), _mm256_setzero_si256());
  // Selects bytes 2 m and 2 m + 1 of the table for mantissa m.
  const __m256i places = _mm256_add_epi16(
      _mm256_mullo_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(7)), _mm256_set1_epi16(0x0202)),
      _mm256_set1_epi16(0x0100));
  const __m256i difference = _mm256_shuffle_epi8(differences, places);
  return _mm256_add_epi16(normal, _mm256_and_si256(difference, is_subnormal));
}

// Expands 8 words of 4-bit codes, times the scales of their rows, to half of four lines.
inline void ExpandWords4(__m256i words, __m256 scales, uint8_t* lines) {
  const __m256 magnitudes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  const auto value = [&](int place) __attribute__((always_inline)) {
    const __m256i codes = _mm256_srl_epi32(words, _mm_cvtsi32_si128(4 * place));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
    const __m256 number =
        _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign));
    return _mm256_mul_ps(number, scales);
  };
  StorePairs(lines, value(0), value(4));
  StorePairs(lines + kLineBytes, value(1), value(5));
  StorePairs(lines + 2 * kLineBytes, value(2), value(6));
  StorePairs(lines + 3 * kLineBytes, value(3), value(7));
}

}  // namespace

void ExpandI8(const uint8_t* codes, const uint8_t* /*scales*/, int64_t steps, uint8_t* lines) {
  const auto value = [](__m256i in_top_byte) __attribute__((always_inline)) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(in_top_byte, 24));
  };
  for (int64_t i = 0; i < steps * kStepBytes8; i += kHalfLine) {
    const __m256i words = Load(codes + i);
    uint8_t* to = lines + i / kLineBytes * 2 * kLineBytes + i % kLineBytes;
    StorePairs(to, value(_mm256_slli_epi32(words, 24)), value(_mm256_slli_epi32(words, 16)));
    StorePairs(to + kLineBytes, value(_mm256_slli_epi32(words, 8)), value(words));
  }
}

void ExpandF8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  for (int64_t step = 0; step < steps; ++step) {
    const uint8_t* from = codes + step * kStepBytes8;
    uint8_t* to = lines + step * kStepBytes;
    __m256i largest = _mm256_setzero_si256();  // largest magnitude among the codes of the step
    for (int64_t i = 0; i < kStepBytes8; i += kHalfLine) {
      const __m256i words = Load(from + i);
      largest = _mm256_max_epu8(largest, _mm256_and_si256(words, _mm256_set1_epi8(0x7F)));
      uint8_t* line = to + i / kLineBytes * 2 * kLineBytes + i % kLineBytes;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(line),
                          Bf16OfE4M3(_mm256_slli_epi16(words, 8), words));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + kLineBytes),
                          Bf16OfE4M3(words, _mm256_srli_epi16(words, 8)));
    }
    const __m256i is_nan = _mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7F));
    if (_mm256_movemask_epi8(is_nan) != 0) [[unlikely]]
      reference::ExpandF8(from, scales, 1, to);
  }
}

void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  for (int64_t i = 0; i < steps * kStepBytes4; i += kHalfLine) {
    const int64_t line = i / kLineBytes, half = i % kLineBytes;  // two lines per group
    const __m256 group_scales = FloatsOfE4M3(Bytes(scales + line / 2 * kPanelRows + half / 4));
    ExpandWords4(Load(codes + i), group_scales, lines + line * 4 * kLineBytes + half);
  }
}

void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  for (int64_t i = 0; i < steps * kStepBytes4; i += kHalfLine) {
    const int64_t line = i / kLineBytes, half = i % kLineBytes;  // four lines per group
    const __m256 group_scales = FloatsOfE8M0(Bytes(scales + line / 4 * kPanelRows + half / 4));
    ExpandWords4(Load(codes + i), group_scales, lines + line * 4 * kLineBytes + half);
  }
}

void ExpandInt4(const uint8_t* codes, const uint8_t* zero_points, int64_t steps, uint8_t* lines) {
  constexpr int kZero = 8;  // the zero point of formats that do not store one
  for (int64_t i = 0; i < steps * kStepBytes4; i += kHalfLine) {
    const int64_t line = i / kLineBytes, half = i % kLineBytes;  // four lines of codes per step
    const __m256i zeros = zero_points == nullptr
                              ? _mm256_set1_epi32(kZero)
                              : Bytes(zero_points + line / 4 * kPanelRows + half / 4);
    const __m256i words = Load(codes + i);
    const auto value = [&](int place) __attribute__((always_inline)) {
      const __m256i code = _mm256_and_si256(_mm256_srl_epi32(words, _mm_cvtsi32_si128(4 * place)),
                                            _mm256_set1_epi32(15));
      return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, zeros));
    };
    uint8_t* to = lines + line * 4 * kLineBytes + half;
    for (int pair = 0; pair < 4; ++pair)
      StorePairs(to + pair * kLineBytes, value(pair), value(pair + 4));
  }
}

}  // namespace sluice::kernels::avx2
