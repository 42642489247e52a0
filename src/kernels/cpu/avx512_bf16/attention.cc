// Attention over keys and values in BF16; attention_inl.h describes the arithmetic.
#include "kernels/cpu/avx512_bf16/attention_heads_inl.h"

#include "kernels/cpu/avx512/kernels.h"

namespace sluice::kernels::avx512_bf16 {
namespace {

struct Bf16Panels {
  static constexpr int64_t kBytes = 2;
  static constexpr int kVectors = 1;
  // 32 registers contain 6 x 4 sums, four vectors of keys or values, and one element of a row.
  static constexpr int kTileRows = 6;

  static void Read(const uint8_t* panel, int64_t pair, __m512bh (&vectors)[1]) {
    vectors[0] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(panel + pair * 4));
  }
  static void Read(const uint8_t* panel, int64_t pair, Mask lanes, __m512bh (&vectors)[1]) {
    vectors[0] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi32(lanes, panel + pair * 4));
  }
};

}  // namespace

void AttentionChunk(const AttentionChunkArgs& args) {
  if (args.codes)
    AttentionCodesChunk(args);
  else if (args.rounds)
    AttendChunk<Bf16Panels>(args);
  else
    avx512::AttentionChunk(args);
}

void AttentionHeads(const AttentionHeadsArgs& args) {
  if (args.codes)
    AttentionCodesHeads(args);
  else
    AttendHeads<Bf16Panels>(args);
}

}  // namespace sluice::kernels::avx512_bf16
