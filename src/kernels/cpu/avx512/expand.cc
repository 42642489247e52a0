// Expands codes of narrow formats to lines of BF16 pairs in memory.
#include <immintrin.h>

#include "kernels/cpu/avx512/codes_inl.h"
#include "kernels/cpu/avx512/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels::avx512 {
namespace {

constexpr int64_t kStepBytes = 1024;  // bytes of BF16 numbers per step

// `scale_bytes`: bytes of scales per step. unusual(codes, scales, lines) expands a step for which
// IsUnusual returns true.
template <typename Codes, typename Unusual>
inline void ExpandSteps(const uint8_t* codes, const uint8_t* scales, int64_t scale_bytes,
                        int64_t steps, uint8_t* lines, const Unusual& unusual) {
  for (int64_t step = 0; step < steps; ++step) {
    Codes format;
    const uint8_t* from = codes + step * Codes::kVectors * kVectorBytes;
    const uint8_t* step_scales = scales + step * scale_bytes;
    uint8_t* to = lines + step * kStepBytes;
    typename Codes::Scales ready{};
#pragma GCC unroll 8
    for (int v = 0; v < Codes::kVectors; ++v) {
      if (v % Codes::kScaleVectors == 0)
        ready = format.ScalesOf(step_scales + v / Codes::kScaleVectors * kScaleRows);
      const __m512i words = format.Load(from + v * kVectorBytes, ready);
#pragma GCC unroll 4
      for (int i = 0; i < Codes::kLines; ++i)
        _mm512_storeu_si512(to + (v * Codes::kLines + i) * kVectorBytes,
                            format.Line(i, words, ready));
    }
    if (format.IsUnusual(step_scales, scale_bytes)) [[unlikely]]
      unusual(from, step_scales, to);
  }
}

// Returns the same result as Pairs, with fewer instructions. One of them uses the port of the
// permutations.
inline __m512i ShuffledPairs(__m512 first, __m512 second) {
  const __m512i upper_halves =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(second), 0x3333333333333333,
                                  _mm512_castps_si512(first), upper_halves);
}

// Expands one vector of 4-bit codes, times the scales of its rows, to four lines.
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

inline __m512 ScalesOfE8M0(__m512i codes) {
  __m512i bits = _mm512_slli_epi32(codes, 23);
  bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(codes, codes),
                               _mm512_set1_epi32(0x00400000));
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(0xFF)),
                               _mm512_set1_epi32(0x7FC00000));
  return _mm512_castsi512_ps(bits);
}

inline __m512 ScalesOfE4M3(__m512i codes) {
  const __m512i in_top_byte = _mm512_slli_epi32(codes, 8);
  const __m512i halves = _mm512_or_si512(
      _mm512_srli_epi32(_mm512_and_si512(in_top_byte, _mm512_set1_epi32(0x7F00)), 1),
      _mm512_and_si512(in_top_byte, _mm512_set1_epi32(0x8000)));
  const __m512 values =
      _mm512_mul_ps(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)), _mm512_set1_ps(0x1p8f));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(_mm512_and_si512(codes, _mm512_set1_epi32(0x7F)),
                                                   _mm512_set1_epi32(0x7F));
  return _mm512_mask_mov_ps(values, is_nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)));
}

// Expands a step vector by vector. scales_of returns the scales of each vector's rows.
template <typename ScalesOf>
inline void ExpandStep4(const uint8_t* codes, uint8_t* lines, const ScalesOf& scales_of) {
  for (int i = 0; i < 4; ++i) {
    ExpandWords4(LoadVector(codes + i * kVectorBytes), NumbersOfE2M1(), scales_of(i),
                 lines + 4 * i * kVectorBytes);
  }
}

__attribute__((noinline)) void ExpandUnusualMxfp4(const uint8_t* codes, const uint8_t* scales,
                                                  uint8_t* lines) {
  ExpandStep4(codes, lines, [&](int) { return ScalesOfE8M0(Bytes(scales)); });
}

__attribute__((noinline)) void ExpandUnusualNvfp4(const uint8_t* codes, const uint8_t* scales,
                                                  uint8_t* lines) {
  ExpandStep4(codes, lines,
              [&](int i) { return ScalesOfE4M3(Bytes(scales + i / 2 * kScaleRows)); });
}

const auto kNothingUnusual = [](const uint8_t*, const uint8_t*, uint8_t*) {};

}  // namespace

void ExpandI8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  ExpandSteps<I8Codes>(codes, scales, 0, steps, lines, kNothingUnusual);
}

void ExpandF8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  ExpandSteps<F8Codes<Among::kFewProducts>>(
      codes, scales, 0, steps, lines,
      [](const uint8_t* from, const uint8_t* step_scales, uint8_t* to) {
        reference::ExpandF8(from, step_scales, 1, to);
      });
}

void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  ExpandSteps<Nvfp4Codes<Among::kFewProducts>>(codes, scales, 2 * kScaleRows, steps, lines,
                                               ExpandUnusualNvfp4);
}

void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines) {
  ExpandSteps<Mxfp4Codes<Among::kFewProducts>>(codes, scales, kScaleRows, steps, lines,
                                               ExpandUnusualMxfp4);
}

void ExpandInt4(const uint8_t* codes, const uint8_t* zero_points, int64_t steps, uint8_t* lines) {
  if (zero_points == nullptr)
    ExpandSteps<Int4Codes>(codes, zero_points, 0, steps, lines, kNothingUnusual);
  else
    ExpandSteps<ZeroPointInt4Codes>(codes, zero_points, kScaleRows, steps, lines, kNothingUnusual);
}

}  // namespace sluice::kernels::avx512
