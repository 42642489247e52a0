// The attention sub-layer: projections, QK norm where the family has one, rope, cache, attention.
// `spec` has the heads that this rank holds.
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// Appends K and V of all rows to `cache`, where the layer has its own. From the workspace's
// `normed` [rows, hidden]; leaves q in its `qkv`.
void ProjectAndAppend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                      const LayerCache& cache);

// Attends from the q of ProjectAndAppend over the cache, into the workspace's `own_attended`: the
// heads of `attended` [rows, q_width] that this rank holds, in the type of the output projection's
// inputs.
void Attend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
            const LayerCache& cache);

// The output projection of the first `rows` rows of `attended`, into the workspace's `own_delta`:
// the columns of `delta` [rows, hidden] that this rank holds.
void ProjectOutput(const Step& step, const AttentionWeights& weights, int64_t rows);

}  // namespace sluice
