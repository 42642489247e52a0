// Checks the indexer of sparse latent attention; belongs to the part "latent".
#pragma once

#include "kernels/cuda/checks/check_run.h"

namespace sluice::checks {

// Checks queries and keys of indexers, and the positions that they select.
void CheckIndexer(CheckRun& run);

}  // namespace sluice::checks
