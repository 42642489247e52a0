// Checks rows of NVFP4 elements; belongs to the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Compares in-place rounding by convert_rows with the CPU's rounding, and the rows packed by
// pack_nvf4 with its inputs. All comparisons are exact.
void CheckNvF4Rows(CheckRun& run);

}  // namespace sluice::checks
