// Rows of NVFP4 numbers: a piece of the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Rounding by convert_rows, in place, against the CPU's, and pack_nvf4 against the rows that it
// packs. All of it is exact.
void CheckNvF4Rows(CheckRun& run);

}  // namespace sluice::checks
