// The kernels that use dot products and matrix products of BF16 numbers and 8-bit integers
// (FEAT_BF16 and FEAT_I8MM: Neoverse V1, N2, V2, Cortex-X2); contracts: kernel_table.h. Call them
// only on a CPU that has these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::neon_bf16 {

LinearFunction LinearBf16, LinearI8;
// Maximum number of rows for which LinearBf16 expands codes itself.
constexpr int64_t kExpandRows = 2;

}  // namespace sluice::kernels::neon_bf16
