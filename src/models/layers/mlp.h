// The MLP sub-layer: down(activation(gate(x)) * up(x)).
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// From the first `rows` rows of the workspace's `normed` [rows, hidden] into its `own_delta`: the
// columns of `delta` [rows, hidden] that this rank holds.
void Mlp(const Step& step, const MlpSpec& spec, const MlpWeights& weights, int64_t rows);

// activation(x[m, i]) * x[m, width + i] of dense F32 rows [rows, 2 * width], to `y` [rows, width]
// of `y_type`. REQUIRES: not kClampedSwiglu, which experts alone have.
void ApplyGate(const Step& step, Activation activation, const float* x, int64_t rows, int64_t width,
               void* y, ElementType y_type);

// Completes `activated` [rows, width] from the `own_activated` of all ranks.
void GatherActivated(const Step& step, int64_t width, int64_t rows, ElementType type);

}  // namespace sluice
