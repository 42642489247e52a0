// The program of an image tower (TowerSpec), on the CPU.
#pragma once

#include "models/model.h"
#include "models/program/program.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_weights.h"

namespace sluice::program {

// The layers of the cache that a tower attends over: of a step whose slices are, group by group,
// the whole image and its windows.
inline constexpr int64_t kTowerWhole = 0, kTowerWindows = 1;

struct TowerParts {
  const TowerSpec& spec;
  // max_rows, max_slices, max_context: of one image, tile or crop; max_logit_rows: of its results.
  const ModelOptions& options;
  int num_threads = 1;
  const TowerWeights& weights;
};

// Ownership: the weights outlive the program.
Program BuildTower(const TowerParts& parts);

}  // namespace sluice::program
