// The programs of an image tower (TowerSpec). The whole tower runs on the CPU, or it is divided: a
// front on the CPU embeds patches, and a body on a device computes the layers and the operators
// after them.
#pragma once

#include "models/model.h"
#include "models/program/builder.h"
#include "models/program/program.h"
#include "models/tower/tower_spec.h"
#include "models/tower/tower_weights.h"

namespace sluice::program {

// The cache layers of a tower. Its steps have one group of slices for the whole image, followed by
// one for its windows.
inline constexpr int64_t kTowerWhole = 0, kTowerWindows = 1;

enum class TowerPart : uint8_t {
  kWhole,
  kFront,  // the front; StoreImage writes the rows that enter the first layer
  kBody,   // the body; begins with these rows in the buffer "residual"
};

struct TowerParts {
  const TowerSpec& spec;
  // max_rows, max_slices and max_context are limits for one image, tile or crop. max_logit_rows is
  // the limit for its results.
  const ModelOptions& options;
  int num_threads = 1;
  const TowerWeights& weights;
  TowerPart part = TowerPart::kWhole;
  const DeviceTarget* device = nullptr;  // null: the CPU
};

// Ownership: the weights outlive the program.
Program BuildTower(const TowerParts& parts);

}  // namespace sluice::program
