// The kernel tables of the vector instruction sets.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

// x86-64.
extern const KernelTable kAvx2Kernels;
// Bit-identical to kAvx2Kernels, for CPUs that compute with subnormal F32 numbers at full speed.
extern const KernelTable kAvx2SubnormalsKernels;
extern const KernelTable kAvx2VnniKernels;      // AVX2 with dot products of 8-bit integers
extern const KernelTable kAvx2VnniEvexKernels;  // the same in AVX-512's encoding
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512VnniKernels;  // AVX-512 with dot products of 8-bit integers
extern const KernelTable kAvx512Bf16Kernels;  // also with dot products of BF16
// Bit-identical to kAvx512Bf16Kernels, for CPUs on which dot products of BF16 are slower than F32
// multiply-adds.
extern const KernelTable kAvx512SlowBf16Kernels;
extern const KernelTable kAmxKernels;  // AVX-512 with AMX tiles for products of BF16 matrices

// aarch64.
extern const KernelTable kNeonKernels;
extern const KernelTable kNeonDotprodKernels;  // NEON with dot products of 8-bit integers
extern const KernelTable kNeonBf16Kernels;     // NEON with matrix products of BF16 and of bytes

}  // namespace sluice::kernels
