// The kernels that use dot products of 8-bit integers (FEAT_DotProd: Neoverse N1, Cortex-A76);
// contracts: kernel_table.h. Call them only on a CPU that has these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::neon_dotprod {

LinearFunction LinearI8;

}  // namespace sluice::kernels::neon_dotprod
