// Rows of NVFP4 numbers: a piece of the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Rounding by convert_rows and rms_norm against the CPU's, and pack_nvf4 against the rows that it
// packs: all of it exact.
void CheckNvF4Rows(CheckRun& run);

}  // namespace sluice::checks
