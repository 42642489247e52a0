// The mixture of experts that stands in for, or beside, a layer's MLP.
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// The router, the MLP that sees every token where the layer has one, and the chosen experts: from
// the first `rows` rows of the workspace's `normed` [rows, hidden] and of its `residual`, whose
// norm `normed` is, into its `own_delta` (mlp.h); with MoeSpec::own_norms, which norm whole rows,
// into all of its `delta`.
//
// Each chunk of rows passes over the weights of its active experts once. The results of a row's
// experts are added in the order of their logits, whatever else is in the step. REQUIRES:
// spec.moe.
void Moe(const Step& step, const LayerSpec& spec, const LayerWeights& weights, int64_t rows);

}  // namespace sluice
