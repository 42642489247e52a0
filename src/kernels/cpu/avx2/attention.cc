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

}  // namespace sluice::kernels::avx2
