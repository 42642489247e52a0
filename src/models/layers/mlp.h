// The MLP sub-layer: down(silu(gate(x)) * up(x)).
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// From the first `rows` rows of the workspace's `normed` [rows, hidden] into its `delta` [rows,
// hidden].
void Mlp(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows);

}  // namespace sluice
