// The kernels that use dot products of 8-bit integers in registers of 256 bits; contracts:
// kernel_table.h. The same source in two encodings of the instruction, to be called only on a CPU
// that has it: AVX-VNNI (client CPUs since Alder Lake, Zen 5), and that of AVX-512 VNNI, so that
// these kernels can be tested and measured on servers that lack the other.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx2_vnni {

LinearFunction LinearI8;
LinearFunction LinearI8Evex;

}  // namespace sluice::kernels::avx2_vnni
