// Kernels whose results are bit-identical on every CPU with AVX2 and FMA and on every aarch64 CPU,
// for receipts that are verified elsewhere (docs/receipts.md).
//
// Products are chains of multiply-adds in F32 in ascending order of inputs (linear_inl.h), never
// dot products of BF16; operators that add lanes use their scalar versions (vector_kernel.h), and
// attention adds the weights of a row by SumWeights. NumericFingerprint() samples the functions
// that the math library computes (exp of the scalar versions, sin and cos of rotary positions).
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

// Built from AVX2 on x86-64 and from NEON on aarch64; other architectures have none.
extern const KernelTable kPortableKernels;

namespace portable {

// Sets args.sum to the sums of the weights that an AttentionFunction has left in args.scores.
// Weights are added in eight lanes by position; then the lanes are added in order.
void SumWeights(const AttentionChunkArgs& args);

// Computes attention with kBase, and sums the weights by SumWeights, in the same order on all
// instruction sets.
template <AttentionFunction* kBase>
void AttentionChunk(const AttentionChunkArgs& args) {
  kBase(args);
  SumWeights(args);
}

// The portable table, based on the table of an instruction set. That table's products are chains of
// multiply-adds in F32, which are the same for any number of lanes. kAttention: the attention
// function of that table.
template <AttentionFunction* kAttention>
constexpr KernelTable TableFrom(KernelTable table) {
  table.attention_chunk = AttentionChunk<kAttention>;
  return table;
}

}  // namespace portable
}  // namespace sluice::kernels
