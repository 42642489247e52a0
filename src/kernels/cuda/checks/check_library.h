// Products of many rows, as the model gives them to the vendor's library.
#pragma once

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/device_linear.h"

namespace sluice::checks {

// Checks what DeviceLinear makes of such products with these options; skips where it would not use
// a library.
void CheckLibraryProducts(CheckRun& run, const device::DeviceLinearOptions& options);

}  // namespace sluice::checks
