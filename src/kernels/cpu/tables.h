// The tables of the implementations in vector instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

// x86-64.
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;  // AVX-512 with BF16 dot products
extern const KernelTable kAmxKernels;  // AVX-512 with AMX tiles for products of BF16 matrices

// aarch64.
extern const KernelTable kNeonKernels;
extern const KernelTable kNeonDotprodKernels;  // NEON with dot products of 8-bit integers
extern const KernelTable kNeonBf16Kernels;     // NEON with matrix products of BF16 and of bytes

}  // namespace sluice::kernels
