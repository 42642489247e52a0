// Attention over keys and values in E4M3 codes, which become BF16 in registers by permutations of
// bytes (AVX-512 VBMI); arithmetic: attention_inl.h.
#include "kernels/cpu/avx512_bf16/attention_heads_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

// The bytes of the 128 magnitudes in BF16, and the places of 32 words in two vectors of 64 of these
// bytes: the lower in the first, the upper in the second.
struct CodeTables {
  alignas(64) uint8_t lower[128] = {}, upper[128] = {};
  alignas(64) uint8_t words[2][64] = {};
  constexpr CodeTables() {
    constexpr int kSubnormals[8] = {0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60};
    for (int i = 0; i < 128; ++i) {
      const int normal = (i << 4) + ((127 - 7) << 7);
      const int bits = i < 8 ? kSubnormals[i] : i == 127 ? 0x7FC0 : normal;
      lower[i] = static_cast<uint8_t>(bits & 0xFF);
      upper[i] = static_cast<uint8_t>(bits >> 8);
    }
    for (int i = 0; i < 64; ++i) {
      words[0][i] = static_cast<uint8_t>(i / 2 + i % 2 * 64);
      words[1][i] = static_cast<uint8_t>(words[0][i] + 32);
    }
  }
};
constexpr CodeTables kCodeTables;

struct E4M3Panels {
  static constexpr int64_t kBytes = 1;
  static constexpr int kVectors = 2;
  // 32 registers hold 4 x 4 sums, the tables, and codes on their way.
  static constexpr int kTileRows = 4;

  void Read(const uint8_t* panel, int64_t pair, __m512bh (&vectors)[2]) const {
    const Bytes bytes = BytesOf(_mm512_loadu_si512(panel + pair * 2));
    vectors[0] = Words(bytes, words[0]);
    vectors[1] = Words(bytes, words[1]);
  }
  void Read(const uint8_t* panel, int64_t pair, __m512bh (&vectors)[1]) const {
    Read(panel, pair, static_cast<Mask>(0xFFFF), vectors);
  }
  void Read(const uint8_t* panel, int64_t pair, Mask lanes, __m512bh (&vectors)[1]) const {
    const __m256i codes = _mm256_maskz_loadu_epi16(lanes, panel + pair * 2);
    vectors[0] = Words(BytesOf(_mm512_castsi256_si512(codes)), words[0]);
  }

 private:
  struct Bytes {
    __m512i lower, upper;
  };
  // An index has 7 bits: that of the sign does not count.
  Bytes BytesOf(__m512i codes) const {
    constexpr int kAOrBAndC = 0xF8;
    const __m512i magnitudes = _mm512_permutex2var_epi8(upper[0], codes, upper[1]);
    return {_mm512_permutex2var_epi8(lower[0], codes, lower[1]),
            _mm512_ternarylogic_epi32(magnitudes, codes, sign, kAOrBAndC)};
  }
  static __m512bh Words(const Bytes& bytes, __m512i places) {
    return reinterpret_cast<__m512bh>(_mm512_permutex2var_epi8(bytes.lower, places, bytes.upper));
  }

  __m512i lower[2] = {_mm512_load_si512(kCodeTables.lower),
                      _mm512_load_si512(kCodeTables.lower + 64)};
  __m512i upper[2] = {_mm512_load_si512(kCodeTables.upper),
                      _mm512_load_si512(kCodeTables.upper + 64)};
  __m512i words[2] = {_mm512_load_si512(kCodeTables.words[0]),
                      _mm512_load_si512(kCodeTables.words[1])};
  __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
};

}  // namespace

void AttentionCodesChunk(const AttentionChunkArgs& args) {
  AttendChunk<E4M3Panels>(args);
}

void AttentionCodesHeads(const AttentionHeadsArgs& args) {
  AttendHeads<E4M3Panels>(args);
}

}  // namespace sluice::kernels::avx512_bf16
