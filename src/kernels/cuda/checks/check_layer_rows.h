// Rows that the layers of some models have beside others: a piece of the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Embeddings in layers and the gate that they pass, sums with a factor, and the soft cap of logits.
void CheckLayerRows(CheckRun& run);

}  // namespace sluice::checks
