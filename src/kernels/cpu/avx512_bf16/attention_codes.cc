// Attention over keys and values in E4M3 codes, converted to BF16 in registers by byte permutations
// (AVX-512 VBMI); attention_inl.h describes the arithmetic.
#include "kernels/cpu/avx512_bf16/attention_heads_inl.h"
#include "kernels/cpu/avx512_bf16/e4m3_bytes_inl.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

// attention_layout.h defines the order of the codes.
struct E4M3Panels {
  static constexpr int64_t kBytes = 1;
  static constexpr int kVectors = 2;
  // 32 registers contain 4 x 4 sums, the tables, and the codes being converted.
  static constexpr int kTileRows = 4;

  void Read(const uint8_t* panel, int64_t pair, __m512bh (&vectors)[2]) const {
    const __m512i codes = _mm512_loadu_si512(panel + pair * 2);
    const __m512i lower = permutations.Lower(codes), upper = permutations.Upper(codes);
    vectors[0] = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(lower, upper));
    vectors[1] = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(lower, upper));
  }
  // Reads values after the last whole group of codes, in BF16 order.
  void Read(const uint8_t* panel, int64_t pair, Mask lanes, __m512bh (&vectors)[1]) const {
    const __m256i codes = _mm256_maskz_loadu_epi16(lanes, panel + pair * 2);
    const __m512i bytes = _mm512_cvtepu8_epi16(codes);
    vectors[0] = reinterpret_cast<__m512bh>(
        _mm512_or_si512(_mm512_and_si512(permutations.Lower(bytes), _mm512_set1_epi16(0xFF)),
                        _mm512_slli_epi16(permutations.Upper(bytes), 8)));
  }

  E4M3Permutations permutations;
};

}  // namespace

void AttentionCodesChunk(const AttentionChunkArgs& args) {
  AttendChunk<E4M3Panels>(args);
}

void AttentionCodesHeads(const AttentionHeadsArgs& args) {
  AttendHeads<E4M3Panels>(args);
}

}  // namespace sluice::kernels::avx512_bf16
