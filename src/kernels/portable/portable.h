// Kernels whose results have the same bits on every CPU with AVX2 and FMA and on every aarch64 CPU,
// for receipts that are verified elsewhere (docs/receipts.md).
//
// Products are chains of multiply-adds in F32 in ascending order of inputs (linear_inl.h), never
// dot products of BF16; operators that add lanes use their scalar versions (vector_kernel.h), and
// attention adds the weights of a row here. What is left to the math library (exp of the scalar
// versions, sin and cos of rotary positions) is sampled by NumericFingerprint().
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

// Built from AVX2 on x86-64 and from NEON on aarch64; other architectures have none.
extern const KernelTable kPortableKernels;

namespace portable {

// Sets args.sum to the sums of the weights that an AttentionFunction has left in args.scores, added
// in eight lanes by position, and the lanes in order.
void SumWeights(const AttentionChunkArgs& args);

// Attention by kBase, with the sums of weights of every instruction set.
template <AttentionFunction* kBase>
void AttentionChunk(const AttentionChunkArgs& args) {
  kBase(args);
  SumWeights(args);
}

// The portable table on top of `table`, an instruction set's whose products are chains of
// multiply-adds in F32, which are the same for any number of lanes. kAttention: its attention.
template <AttentionFunction* kAttention>
constexpr KernelTable TableFrom(KernelTable table) {
  table.attention_chunk = AttentionChunk<kAttention>;
  return table;
}

}  // namespace portable
}  // namespace sluice::kernels
