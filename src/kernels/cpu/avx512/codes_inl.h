// Converts narrow codes to lines of BF16 pairs in registers; panel_layout.h defines the order of
// the codes.
//
// Each format has a class, whose data members are the constants that it needs in registers:
//   kVectors, kLines: vectors of codes per step of 32 inputs, and lines per vector;
//   kScaleVectors: number of vectors that share scales;
//   Scales, ScalesOf(scales): the prepared scales of one panel for the next kScaleVectors vectors;
//   Load(codes, scales): loads the vector at `codes` for Line;
//   Line(i, words, scales): line i of a loaded vector;
//   kHasScales: whether ScalesOf reads any;
//   IsUnusual(scales, count): whether any vector loaded so far, or any of the scales, is a case
//   that this arithmetic gets wrong (NaN, scales at the ends of their range). Then the caller must
//   compute all lines again in another way.
//
// All values are exact in BF16, so the BF16 number is the upper half of the F32, without rounding.
#pragma once

#include <immintrin.h>
#include <stdint.h>

namespace sluice::kernels {
namespace {

constexpr int64_t kVectorBytes = 64;
constexpr int64_t kScaleRows = 16;

inline __m512i LoadVector(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

// The resource that a conversion should save: instructions if there are few dot products per line,
// else the execution units that the products use.
enum class Among { kFewProducts, kManyProducts };

// Combines F32 numbers (exact in BF16) into pairs (first, second) of BF16.
inline __m512i Pairs(__m512 first, __m512 second) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                         _mm512_castps_si512(second));
}

// Converts E4M3 codes in the upper bytes of 16-bit words to BF16. `codes`: the same codes in the
// lower bytes; upper bytes arbitrary. The formula for normal numbers reads a code with a zero
// exponent as 2^-7 * 1.mmm; a table contains the corrections to add. NaN is not handled.
template <Among kAmong>
inline __m512i Bf16OfE4M3(__m512i upper, __m512i codes, __m512i subnormals) {
  const __m512i shifted =
      _mm512_and_si512(_mm512_srai_epi16(upper, 4), _mm512_set1_epi16(static_cast<short>(0x87F0)));
  const __m512i normal = _mm512_add_epi16(shifted, _mm512_set1_epi16(120 << 7));
  const __m512i difference = _mm512_permutexvar_epi16(codes, subnormals);
  const __m512i exponents = _mm512_set1_epi16(0x7800);
  if constexpr (kAmong == Among::kFewProducts) {
    return _mm512_mask_add_epi16(normal, _mm512_testn_epi16_mask(upper, exponents), normal,
                                 difference);
  }
  // Comparisons run on the execution units of the products. So this computes the mask of nonzero
  // exponents without a comparison.
  const __m512i is_normal =
      _mm512_srai_epi16(_mm512_add_epi16(_mm512_and_si512(upper, exponents), exponents), 15);
  return _mm512_add_epi16(normal, _mm512_andnot_si512(is_normal, difference));
}

// BF16(m * 2^-9) - BF16(2^-7 * (1 + m / 8)) for m = 0 to 7, repeated four times.
struct SubnormalTable {
  alignas(64) short words[32] = {};
  constexpr SubnormalTable() {
    constexpr int kBf16[8] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
    for (int i = 0; i < 32; ++i)
      words[i] = static_cast<short>(kBf16[i % 8] - (120 << 7) - (i % 8) * 16);
  }
};
constexpr SubnormalTable kSubnormals;

inline __m512i Bytes(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The BF16 values of the E2M1 codes, repeated: the index bit above the code is ignored.
struct E2M1Table {
  alignas(64) uint16_t words[32] = {};
  constexpr E2M1Table() {
    constexpr uint16_t kMagnitudes[8] = {0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0};
    for (int i = 0; i < 32; ++i)
      words[i] = static_cast<uint16_t>(kMagnitudes[i % 8] | (i & 8) << 12);
  }
};
constexpr E2M1Table kBf16OfE2M1;

// BF16(i % 16 - 8) for i = 0 to 31: INT4 values without a zero point.
struct CentredTable {
  alignas(64) uint16_t words[32] = {};
  constexpr CentredTable() {
    constexpr uint16_t kMagnitudes[9] = {0,      0x3F80, 0x4000, 0x4040, 0x4080,
                                         0x40A0, 0x40C0, 0x40E0, 0x4100};
    for (int i = 0; i < 32; ++i)
      words[i] = i % 16 < 8 ? 0x8000 | kMagnitudes[8 - i % 16] : kMagnitudes[i % 16 - 8];
  }
};
constexpr CentredTable kCentredIntegers;

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

inline __m512i Shifted(__m512i words, int index) {
  switch (index) {
    case 0: return words;
    case 1: return _mm512_srli_epi16(words, 4);
    case 2: return _mm512_srli_epi16(words, 8);
    default: return _mm512_srli_epi16(words, 12);
  }
}

// Returns max(a - b, 0).
template <Among kAmong>
inline __m512i SubtractOrZero(__m512i a, __m512i b) {
  // Saturating subtraction runs on the execution units that the products use; max and plain
  // subtraction do not.
  if constexpr (kAmong == Among::kFewProducts) return _mm512_subs_epu16(a, b);
  return _mm512_sub_epi16(_mm512_max_epu16(a, b), b);
}

// Returns whether byte - offset (modulo 256) is at least `least` for any of the bytes.
inline bool AnyIsAtLeast(const uint8_t* bytes, int64_t count, uint8_t offset, uint8_t least) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += kVectorBytes) {
    const int64_t left = count - i;
    const __mmask64 mask = left >= kVectorBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i shifted = _mm512_maskz_sub_epi8(mask, _mm512_maskz_loadu_epi8(mask, bytes + i),
                                                  _mm512_set1_epi8(static_cast<char>(offset)));
    largest = _mm512_max_epu8(largest, shifted);
  }
  return _mm512_cmpge_epu8_mask(largest, _mm512_set1_epi8(static_cast<char>(least))) != 0;
}

struct NoScales {};

struct I8Codes {
  static constexpr int kVectors = 8, kLines = 2, kScaleVectors = 8;
  static constexpr bool kHasScales = false;
  using Scales = NoScales;
  NoScales ScalesOf(const uint8_t* /*scales*/) const { return {}; }
  bool IsUnusual(const uint8_t* /*scales*/, int64_t /*count*/) const { return false; }

  // Line inserts the byte code + 128 into the mantissa of the F32 `place`, whose exponent makes the
  // result place + code + 128. Then it subtracts place + 128. This avoids most shifts, which run on
  // the fewest execution units.
  __m512i Load(const uint8_t* codes, NoScales /*scales*/) const {
    return _mm512_xor_si512(LoadVector(codes), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, NoScales /*scales*/) const {
    const auto value = [](__m512i codes, int mask, float place) __attribute__((always_inline)) {
      constexpr int kAAndBOrC = 0xEA;
      const __m512 raised = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
          codes, _mm512_set1_epi32(mask), _mm512_castps_si512(_mm512_set1_ps(place)), kAAndBOrC));
      return _mm512_sub_ps(raised, _mm512_set1_ps(place + 128));
    };
    const __m512i codes = i == 0 ? words : _mm512_srli_epi32(words, 16);
    return Pairs(value(codes, 0xFF, 0x1p23f), value(codes, 0xFF00, 0x1p15f));
  }
};

// IsUnusual reports NaN.
template <Among kAmong>
struct F8Codes {
  static constexpr int kVectors = 8, kLines = 2, kScaleVectors = 8;
  static constexpr bool kHasScales = false;
  using Scales = NoScales;
  NoScales ScalesOf(const uint8_t* /*scales*/) const { return {}; }
  bool IsUnusual(const uint8_t* /*scales*/, int64_t /*count*/) const {
    return _mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(0x7F)) != 0;
  }

  __m512i Load(const uint8_t* codes, NoScales /*scales*/) { return Load(LoadVector(codes)); }
  __m512i Load(__m512i words) {
    largest = _mm512_max_epu8(largest, _mm512_and_si512(words, _mm512_set1_epi8(0x7F)));
    return words;
  }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, NoScales /*scales*/) const {
    if (i == 0) return Bf16OfE4M3<kAmong>(_mm512_slli_epi16(words, 8), words, subnormals);
    return Bf16OfE4M3<kAmong>(words, _mm512_srli_epi16(words, 8), subnormals);
  }

  __m512i subnormals = _mm512_load_si512(kSubnormals.words);
  __m512i largest = _mm512_setzero_si512();  // largest magnitude of the codes loaded so far
};

// The BF16 values of the E2M1 codes times 2^126, repeated; both zeros are +0. `half`: the mantissa
// bits that stand for 1.5.
struct LargeE2M1Table {
  alignas(64) uint16_t words[32] = {};
  constexpr explicit LargeE2M1Table(int half) {
    for (int i = 0; i < 32; ++i) {
      const int number = kBf16OfE2M1.words[i];
      const int mantissa = (number & 0x7F) != 0 ? half : 0;
      if (i % 8 != 0) words[i] = static_cast<uint16_t>((number & 0xFF80) + (126 << 7) + mantissa);
    }
  }
};

// The table holds the values times 2^126. Applying a scale 2^e adds e - 126 to their exponents, by
// a saturating subtraction, which keeps zero. Scales outside of 2^-125 to 2^125 are unusual:
// products may not be normal BF16 numbers, or the scale is NaN.
template <Among kAmong>
struct Mxfp4Codes {
  static constexpr int kVectors = 4, kLines = 4, kScaleVectors = 4;
  static constexpr bool kHasScales = true;
  using Scales = __m512i;  // the value to subtract, in both halves of a row's word
  __attribute__((always_inline)) __m512i ScalesOf(const uint8_t* scales) const {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    const __m512i less = _mm512_slli_epi32(
        _mm512_sub_epi32(_mm512_set1_epi32(127 + 126), _mm512_cvtepu8_epi32(codes)), 7);
    return _mm512_or_si512(less, _mm512_slli_epi32(less, 16));
  }
  bool IsUnusual(const uint8_t* scales, int64_t count) const {
    return AnyIsAtLeast(scales, count, 2, 251);
  }

  __m512i Load(const uint8_t* codes, __m512i /*scales*/) const { return LoadVector(codes); }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, __m512i scales) const {
    return SubtractOrZero<kAmong>(_mm512_permutexvar_epi16(Shifted(words, i), numbers), scales);
  }

  static constexpr LargeE2M1Table kNumbers{0x40};
  __m512i numbers = _mm512_load_si512(kNumbers.words);
};

// Indexed by the three mantissa bits of a scale; repeated four times. An entry is the difference of
// the bits of 1.5 * scale and of the scale, in the place of a BF16 mantissa, with all higher bits
// set.
struct HalfMoreTable {
  alignas(64) uint16_t words[32] = {};
  constexpr HalfMoreTable() {
    constexpr int kUnit = 16;  // the unit of the mantissa's three bits
    for (int i = 0; i < 32; ++i) {
      const int scale = 8 + i % 8;  // in eighths
      const int product = scale * kUnit * 3 / 2;
      const bool carries = product >= 16 * kUnit;
      const int bits = carries ? 8 * kUnit + product / 2 : product;
      words[i] = static_cast<uint16_t>(0xFF80 | (bits - scale * kUnit));
    }
  }
};
constexpr HalfMoreTable kHalfMore;

// Like Mxfp4Codes, for scales with a mantissa, whose bits are added to the number's power of two. A
// number whose mantissa is 1.5 has all mantissa bits set; the mask keeps only the bits by which 1.5
// * scale differs from the scale. With a scale of zero, the subtraction gives zero. IsUnusual
// reports NaN and negative scales.
template <Among kAmong>
struct Nvfp4Codes {
  static constexpr int kVectors = 4, kLines = 4, kScaleVectors = 2;
  static constexpr bool kHasScales = true;
  struct Scales {  // the scales, for both halves of a row's word
    __m512i less;  // subtracted from the number's bits
    __m512i mask;  // mask for the number's bits
  };
  __attribute__((always_inline)) Scales ScalesOf(const uint8_t* scales) const {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    // Read as F16, the same bits are the scale times 2^-8, subnormal scales included.
    const __m512i bits =
        _mm512_castps_si512(_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 7)));
    const __m512i both = _mm512_or_si512(bits, _mm512_srli_epi32(bits, 16));
    const __m512i bias = _mm512_set1_epi16((127 + 126 - 8) << 7);
    return {_mm512_mask_sub_epi32(_mm512_set1_epi32(-1), _mm512_test_epi32_mask(bits, bits), bias,
                                  both),
            _mm512_permutexvar_epi16(_mm512_srli_epi16(both, 4), half_more)};
  }
  bool IsUnusual(const uint8_t* scales, int64_t count) const {
    return AnyIsAtLeast(scales, count, 0, 0x7F);
  }

  __m512i Load(const uint8_t* codes, const Scales& /*scales*/) const { return LoadVector(codes); }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, const Scales& scales) const {
    const __m512i number = _mm512_permutexvar_epi16(Shifted(words, i), numbers);
    return SubtractOrZero<kAmong>(_mm512_and_si512(number, scales.mask), scales.less);
  }

  static constexpr LargeE2M1Table kNumbers{0x7F};
  __m512i numbers = _mm512_load_si512(kNumbers.words);
  __m512i half_more = _mm512_load_si512(kHalfMore.words);
};

struct Int4Codes {
  static constexpr int kVectors = 4, kLines = 4, kScaleVectors = 4;
  static constexpr bool kHasScales = false;
  using Scales = NoScales;
  NoScales ScalesOf(const uint8_t* /*zero_points*/) const { return {}; }
  bool IsUnusual(const uint8_t* /*scales*/, int64_t /*count*/) const { return false; }

  __m512i Load(const uint8_t* codes, NoScales /*scales*/) const { return LoadVector(codes); }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, NoScales /*scales*/) const {
    return _mm512_permutexvar_epi16(Shifted(words, i), numbers);
  }

  __m512i numbers = _mm512_load_si512(kCentredIntegers.words);
};

// Looks up the code minus its zero point; the index into the table is that difference plus 16.
struct ZeroPointInt4Codes {
  static constexpr int kVectors = 4, kLines = 4, kScaleVectors = 4;
  static constexpr bool kHasScales = true;
  using Scales = __m512i;  // 16 minus the zero points
  __m512i ScalesOf(const uint8_t* zero_points) const {
    const __m512i zeros = Bytes(zero_points);
    return _mm512_sub_epi16(_mm512_set1_epi16(16),
                            _mm512_or_si512(zeros, _mm512_slli_epi32(zeros, 16)));
  }
  bool IsUnusual(const uint8_t* /*scales*/, int64_t /*count*/) const { return false; }

  __m512i Load(const uint8_t* codes, __m512i /*offsets*/) const { return LoadVector(codes); }
  __attribute__((always_inline)) __m512i Line(int i, __m512i words, __m512i offsets) const {
    const __m512i code = _mm512_and_si512(Shifted(words, i), _mm512_set1_epi16(15));
    return _mm512_permutexvar_epi16(_mm512_add_epi16(code, offsets), numbers);
  }

  __m512i numbers = _mm512_load_si512(kBf16OfIntegers.words);
};

}  // namespace
}  // namespace sluice::kernels
