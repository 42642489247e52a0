// Checks the exchange of columns between devices, with the memory of all ranks on one device.
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

void CheckExchanges(CheckRun& run);

}  // namespace sluice::checks
