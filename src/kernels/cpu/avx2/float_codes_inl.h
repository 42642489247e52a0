// Converts codes of narrow formats to F32 in 256-bit registers (linear_codes_inl.h lists the
// members of a class); order of the codes in a word: panel_layout.h.
#pragma once

#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/avx2/words_inl.h"
#include "kernels/cpu/linear_codes_inl.h"

namespace sluice::kernels::avx2 {
namespace {

// Constants that instructions read from memory. GCC 12 would keep them in registers, but too few
// registers are free.
template <uint32_t kBits>
struct Repeated {
  alignas(32) uint32_t lanes[8] = {kBits, kBits, kBits, kBits, kBits, kBits, kBits, kBits};
};
template <uint32_t kBits>
constexpr Repeated<kBits> kRepeated;

// Returns kBits & word for each word.
template <uint32_t kBits>
inline Words AndBits(Words words) {
  Words result;
  asm("vpand %2, %1, %0" : "=x"(result) : "x"(words), "m"(kRepeated<kBits>));
  return result;
}

// Shuffle indices that move byte kPlace of each lane to the lane's highest byte, with zeros below.
template <int kPlace>
struct HighestPlaces {
  alignas(32) uint8_t places[32] = {};
  constexpr HighestPlaces() {
    for (int i = 0; i < 32; ++i) places[i] = i % 4 == 3 ? i % 16 - 3 + kPlace : 0x80;
  }
};
template <int kPlace>
constexpr HighestPlaces<kPlace> kHighestPlaces;

template <int kPlace>
inline Words InHighestPlace(Words bytes) {
  Words result;
  asm("vpshufb %2, %1, %0" : "=x"(result) : "x"(bytes), "m"(kHighestPlaces<kPlace>));
  return result;
}

// Returns 2^24 times the signed byte kPlace of each lane. The byte becomes the highest byte of an
// integer with zeros below it, which is exact in F32.
template <int kPlace>
inline Floats LargeFloatsOf(Words bytes) {
  return _mm256_cvtepi32_ps(InHighestPlace<kPlace>(bytes));
}
constexpr float kLargeFloat = 0x1p24f;

struct I8Floats : PlainCodes {
  static constexpr int kInputs = 4;
  static constexpr float kTimes = kLargeFloat;
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(Words words, NoGroupScales /*scales*/) {
    return LargeFloatsOf<kInput>(words);
  }
};

// E4M3 codes. Prepare converts only normal numbers; PrepareAny also handles zero, numbers below
// 2^-6, and NaN.
struct F8Floats : PairCodes {
  static constexpr bool kHasUnusual = true;
  struct Unusual {
    __attribute__((always_inline)) void Add(Words words) {
      // Doubling removes the sign. Subtracting the smallest code that Prepare handles makes smaller
      // codes wrap around to large values.
      const Words twice = _mm256_sub_epi8(_mm256_add_epi8(words, words), _mm256_set1_epi8(2 * 8));
      largest = _mm256_max_epu8(largest, twice);
    }
    __attribute__((always_inline)) bool Found() const {
      const Words least_unusual = _mm256_set1_epi8(static_cast<char>(2 * (0x7F - 8)));
      return _mm256_movemask_epi8(
                 _mm256_cmpeq_epi8(_mm256_max_epu8(largest, least_unusual), largest)) != 0;
    }
    Words largest = _mm256_setzero_si256();
  };

  __attribute__((always_inline)) static Ready Prepare(Words words) {
    return {{PairsOfNormal(_mm256_slli_epi16(words, 8)), PairsOfNormal(words)}};
  }
  __attribute__((always_inline)) static Ready PrepareAny(Words words) {
    // The two bytes of each number. For a normal number, the upper byte is looked up by the sign
    // and three bits of the exponent.
    const Words upper_bits = _mm256_and_si256(_mm256_srli_epi16(words, 4), _mm256_set1_epi8(15));
    const __m128i upper_bytes = _mm_set_epi64x(static_cast<int64_t>(0xC3C2C1C0BFBEBDBCu),
                                               static_cast<int64_t>(0x43424140'3F3E3D3Cu));
    Words upper = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(upper_bytes), upper_bits);
    Words lower =
        _mm256_and_si256(_mm256_slli_epi16(words, 4), _mm256_set1_epi8(static_cast<char>(0xF0)));
    // Corrections added to the bytes of codes below 8, the numbers below 2^-6: table entries 8 to
    // 15. For other codes the index has its highest bit set, which gives zero.
    const Words magnitudes = _mm256_and_si256(words, _mm256_set1_epi8(0x7F));
    const Words places = _mm256_add_epi8(magnitudes, _mm256_set1_epi8(0x78));
    lower = _mm256_add_epi8(
        lower,
        _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<int64_t>(0xF0E0D0C09060F000u)), places));
    upper = _mm256_add_epi8(upper, _mm256_shuffle_epi8(_mm256_set1_epi64x(0xFFFFFFC4), places));
    upper = _mm256_or_si256(upper, _mm256_cmpeq_epi8(magnitudes, _mm256_set1_epi8(0x7F)));  // NaN
    const Words upper_half = _mm256_set1_epi16(static_cast<short>(0xFF00));
    return {{_mm256_or_si256(_mm256_andnot_si256(upper_half, lower), _mm256_slli_epi16(upper, 8)),
             _mm256_or_si256(_mm256_srli_epi16(lower, 8), _mm256_and_si256(upper_half, upper))}};
  }

 private:
  // Converts codes of normal numbers in the upper bytes of 16-bit words to BF16.
  __attribute__((always_inline)) static Words PairsOfNormal(Words upper) {
    const Words bits = _mm256_and_si256(_mm256_srai_epi16(upper, 4),
                                        _mm256_set1_epi16(static_cast<short>(0x87F0)));
    return _mm256_add_epi16(bits, _mm256_set1_epi16(120 << 7));
  }
};

// The nibbles of words as bytes: lower contains inputs 0 4 1 5, upper contains 2 6 3 7, from the
// lowest byte on.
struct HalfBytes {
  Words lower;
  Words upper;
};
inline HalfBytes HalfBytesOf(Words words) {
  constexpr uint32_t kLowNibbles = 0x0F0F0F0F;
  return {AndBits<kLowNibbles>(words), AndBits<kLowNibbles>(_mm256_srli_epi16(words, 4))};
}
// The vector that contains input kInput, and the input's byte index in each lane.
template <int kInput>
inline Words BytesOf(const HalfBytes& bytes) {
  return kInput % 4 < 2 ? bytes.lower : bytes.upper;
}
template <int kInput>
constexpr int kPlaceOf = kInput / 4 + kInput % 2 * 2;

struct ByteTable {
  alignas(16) int8_t bytes[16];
};

// Looks up each nibble in `table`, which is loaded each time: too few registers are free.
inline HalfBytes LookUp(const ByteTable& table, Words words) {
  Words numbers;
  asm volatile("vbroadcasti128 %1, %0" : "=x"(numbers) : "m"(table));
  const HalfBytes places = HalfBytesOf(words);
  return {_mm256_shuffle_epi8(numbers, places.lower), _mm256_shuffle_epi8(numbers, places.upper)};
}

// Factor that is multiplied into the scales, because the decoded values are too large: they are
// doubled, to be integers, and multiplied by kLargeFloat.
constexpr float kE2M1Unit = 1 / (2 * kLargeFloat);

constexpr ByteTable kE2M1Integers = {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
constexpr ByteTable kInt4Integers = {{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};

struct E2M1Floats : PlainCodes {
  static constexpr int kInputs = 8;
  static constexpr bool kHasScales = true;
  using Scales = Floats;
  using Ready = HalfBytes;
  __attribute__((always_inline)) static HalfBytes Prepare(Words words) {
    return LookUp(kE2M1Integers, words);
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const HalfBytes& ready,
                                                         const Floats& scales) {
    Floats numbers = LargeFloatsOf<kPlaceOf<kInput>>(BytesOf<kInput>(ready));
    asm("vmulps %1, %0, %0" : "+x"(numbers) : "m"(scales));
    return numbers;
  }
};

struct Nvfp4Floats : E2M1Floats {
  static constexpr int kGroupInputs = 16;
  static Floats ScalesAt(const uint8_t* scales) {
    return Mul(FloatsOfE4M3(Bytes(scales)), Set(kE2M1Unit));
  }
};

// Returns whether every number is zero, or at least 2^kLeast and below 2^kEnd in magnitude.
// `count`: a multiple of 8.
template <int kLeast, int kEnd>
inline bool AreWithin(const float* values, int64_t count) {
  // As integers, magnitudes have the same order as the numbers. After subtracting 1, zero becomes
  // the largest unsigned number.
  const Words one = _mm256_set1_epi32(1), magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const Words least = _mm256_set1_epi32(((kLeast + 127) << 23) - 1);
  const Words largest_usual = _mm256_set1_epi32(((kEnd + 127) << 23) - 1);
  Words smallest = _mm256_set1_epi32(-1), largest = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; i += kLanes) {
    const Words bits = _mm256_and_si256(LoadWords(values + i), magnitude);
    largest = _mm256_max_epu32(largest, bits);
    smallest = _mm256_min_epu32(smallest, _mm256_sub_epi32(bits, one));
  }
  const Words within =
      _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_max_epu32(smallest, least), smallest),
                       _mm256_cmpeq_epi32(_mm256_min_epu32(largest, largest_usual), largest));
  return _mm256_movemask_epi8(within) == -1;
}

// Multiplies sums by powers of two instead of multiplying elements by scales. Usual magnitudes are:
// - scales: 2^-40 to 2^20;
// - inputs: zero, or 2^-60 to 2^24;
// - sums before a segment: zero, or 2^-60 to 2^50.
// With usual magnitudes, all sums are multiples of 2^-108. Multiplied by kTimes / scale for any
// usual scale, nonzero sums are at least 2^-103 and below 2^120, so they are never subnormal or
// infinite.
struct Mxfp4Floats : E2M1Floats {
  static constexpr bool kRescales = true;
  static constexpr bool kNeedsUsual = true;
  static constexpr int kTimesExponent = 25;  // 1 / kE2M1Unit
  static constexpr int kLeastScale = 127 - 40, kLargestScale = 127 + 20;
  static Words UnitScale() { return _mm256_set1_epi32(127 + kTimesExponent); }
  static Words ScaleCodes(const uint8_t* scales) { return Bytes(scales); }
  static Floats FactorOf(Words from, Words to) {
    const Words exponent = _mm256_add_epi32(_mm256_sub_epi32(from, to), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  // `count`: a multiple of 16.
  static bool AreUsual(const uint8_t* scales, int64_t count) {
    __m128i least = _mm_set1_epi8(kLeastScale),
            largest = _mm_set1_epi8(static_cast<char>(kLargestScale));
    const __m128i first = least, last = largest;
    for (int64_t i = 0; i < count; i += 16) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + i));
      least = _mm_min_epu8(least, codes);
      largest = _mm_max_epu8(largest, codes);
    }
    const __m128i within =
        _mm_and_si128(_mm_cmpeq_epi8(least, first), _mm_cmpeq_epi8(largest, last));
    return _mm_movemask_epi8(within) == 0xFFFF;
  }
  // `inputs`: `count` elements, padded to a multiple of 8.
  static bool AreUsualInputs(const float* inputs, int64_t count) {
    return AreWithin<-60, 24>(inputs, count);
  }
  static bool AreUsualSums(const float* sums, int64_t count) {
    return AreWithin<-60, 50>(sums, count);
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const HalfBytes& ready,
                                                         NoGroupScales /*scales*/) {
    return LargeFloatsOf<kPlaceOf<kInput>>(BytesOf<kInput>(ready));
  }
};

struct Int4Floats : PlainCodes {
  static constexpr int kInputs = 8;
  static constexpr float kTimes = kLargeFloat;
  using Ready = HalfBytes;
  __attribute__((always_inline)) static HalfBytes Prepare(Words words) {
    return LookUp(kInt4Integers, words);
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const HalfBytes& ready,
                                                         NoGroupScales /*scales*/) {
    return LargeFloatsOf<kPlaceOf<kInput>>(BytesOf<kInput>(ready));
  }
};

struct ZeroPointInt4Floats : PlainCodes {
  static constexpr int kInputs = 8;
  static constexpr float kTimes = kLargeFloat;
  static constexpr bool kHasScales = true;
  using Scales = Words;  // the zero points, repeated in every byte of their lanes
  static Words ScalesAt(const uint8_t* zero_points) {
    return _mm256_mullo_epi32(Bytes(zero_points), _mm256_set1_epi32(0x01010101));
  }
  using Ready = HalfBytes;
  __attribute__((always_inline)) static HalfBytes Prepare(Words words) {
    return HalfBytesOf(words);
  }
  template <int kInput>
  __attribute__((always_inline)) static Floats NumbersOf(const HalfBytes& ready,
                                                         const Words& zeros) {
    Words codes = BytesOf<kInput>(ready);
    asm("vpsubb %1, %0, %0" : "+x"(codes) : "m"(zeros));
    return LargeFloatsOf<kPlaceOf<kInput>>(codes);
  }
};

}  // namespace
}  // namespace sluice::kernels::avx2
