// Checks row operators that only some models use; belongs to the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Checks per-layer embeddings and their gate, sums with factors, the gate of a shared expert, parts
// of the router, and soft cap and scale of logits.
void CheckLayerRows(CheckRun& run);

}  // namespace sluice::checks
