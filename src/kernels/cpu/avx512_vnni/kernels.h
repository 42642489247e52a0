// The kernels that use the dot products of 8-bit integers of AVX-512 (VNNI: Cascade Lake, Ice Lake,
// every CPU with BF16 dot products); contracts: kernel_table.h. Call them only on a CPU that has
// these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx512_vnni {

LinearFunction LinearI8;

}  // namespace sluice::kernels::avx512_vnni
