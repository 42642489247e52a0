#include "kernels/cpu/avx2/kernels.h"
#include "kernels/cpu/avx2/simd.h"

#include "kernels/cpu/attention_inl.h"

namespace sluice::kernels::avx2 {

void AttentionChunk(const AttentionChunkArgs& args) {
  if (args.bf16)
    AttentionChunkOf<true>(args);
  else
    AttentionChunkOf<false>(args);
}

void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16) {
  for (int64_t i = 0; i < count; i += kE4M3Codes) DecodeE4M3Codes(codes + i, bf16 + i);
}

}  // namespace sluice::kernels::avx2
