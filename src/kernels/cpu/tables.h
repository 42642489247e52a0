// The tables of the x86 implementations.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;  // AVX-512 with BF16 dot products
extern const KernelTable kAmxKernels;  // AVX-512 with AMX tiles for products of BF16 matrices

}  // namespace sluice::kernels
