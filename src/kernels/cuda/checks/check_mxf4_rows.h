// Checks rows of MXFP4 elements; belongs to the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Compares rounding by convert_rows, in place, with the CPU's, and pack_mxf4 with the rows that it
// packs. All comparisons are of bits.
void CheckMxF4Rows(CheckRun& run);

}  // namespace sluice::checks
