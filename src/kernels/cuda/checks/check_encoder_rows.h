// Checks the row operators of encoders: embeddings, norm, activations.
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

void CheckEncoderRows(CheckRun& run);

}  // namespace sluice::checks
