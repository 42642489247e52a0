// The program of an image tower (TowerSpec), on the CPU.
#pragma once

#include "models/model.h"
#include "models/program/program.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_weights.h"

namespace sluice::program {

// The cache layers of a tower. Its steps have one group of slices for the whole image, then one for
// its windows.
inline constexpr int64_t kTowerWhole = 0, kTowerWindows = 1;

struct TowerParts {
  const TowerSpec& spec;
  // max_rows, max_slices, max_context: limits for one image, tile or crop; max_logit_rows: for its
  // results.
  const ModelOptions& options;
  int num_threads = 1;
  const TowerWeights& weights;
};

// Ownership: the weights outlive the program.
Program BuildTower(const TowerParts& parts);

}  // namespace sluice::program
