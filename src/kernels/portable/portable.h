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

}  // namespace portable
}  // namespace sluice::kernels
