// Embeddings of tokens of their own in every layer: LayerEmbeddingSpec.
#pragma once

#include "models/decoder_spec.h"
#include "models/layers/step.h"
#include "models/weights.h"

namespace sluice {

// What all layers will read of the step's tokens, into Step::layer_embeddings. From the scaled
// embeddings in `residual`, by way of `normed`. In the first stage.
// Source: transformers' Gemma4TextModel, project_per_layer_inputs.
void EmbedInLayers(const Step& step, const DecoderSpec& spec, const DecoderWeights& weights);

// The sub-layer of layer `index` of the stage for the first `rows` rows: adds `delta` to
// `residual`, and leaves its own result in `own_delta`: the columns that this rank holds.
void AddLayerEmbedding(const Step& step, const DecoderSpec& spec,
                       const LayerEmbeddingWeights& weights, int64_t index, int64_t rows);

// Multiplies the first `rows` rows of `residual` and of `delta`, whose sum is the layer's result.
void ScaleResidual(const Step& step, float factor, int64_t rows);

}  // namespace sluice
