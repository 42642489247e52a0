// The kernels that use dot products of 8-bit integers in registers of 256 bits; contracts:
// kernel_table.h. The same source is compiled for two encodings of the instruction: AVX-VNNI
// (client CPUs since Alder Lake, Zen 5) and AVX-512 VNNI, so that these kernels can also be tested
// and measured on servers without AVX-VNNI. Call a function only on a CPU that has its encoding.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx2_vnni {

LinearFunction LinearI8;
LinearFunction LinearI8Evex;

}  // namespace sluice::kernels::avx2_vnni
