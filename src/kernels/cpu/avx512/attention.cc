#include "kernels/cpu/avx512/kernels.h"
#include "kernels/cpu/avx512/simd.h"

#include "kernels/cpu/attention_inl.h"

namespace sluice::kernels::avx512 {

void AttentionChunk(const AttentionChunkArgs& args) {
  if (args.bf16)
    AttentionChunkOf<true>(args);
  else
    AttentionChunkOf<false>(args);
}

}  // namespace sluice::kernels::avx512
