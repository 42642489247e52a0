// The attention sub-layer: projections, QK norm where the family has one, rope, cache, attention.
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// Appends K and V of all rows to `cache`. From the workspace's `normed` [rows, hidden]; leaves q in
// its `qkv`.
void ProjectAndAppend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                      const LayerCache& cache);

// Attends from the q of ProjectAndAppend over the cache, into the workspace's `attended` [rows,
// q_width], which has the type of the output projection's inputs.
void Attend(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
            const LayerCache& cache);

// The output projection of the first `rows` rows of `attended`, into the workspace's `delta` [rows,
// hidden].
void ProjectOutput(const Step& step, const AttentionSpec& spec, const AttentionWeights& weights,
                   int64_t rows);

}  // namespace sluice
