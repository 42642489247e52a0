// Rows that the layers of some models have beside others: a piece of the part "rows".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Embeddings in layers and the gate that they pass, sums with factors, the gate of a shared expert
// and a router's parts, and the soft cap and the scale of logits.
void CheckLayerRows(CheckRun& run);

}  // namespace sluice::checks
