// Embeddings of tokens of their own in every layer of a decoder on a device: LayerEmbeddingSpec.
#include <algorithm>
#include <cmath>

#include "models/device/device_decoder.h"

namespace sluice {

void DeviceDecoder::EmbedInLayers(const Rows& rows) {
  const DeviceLinearWeights& projection = parts_.weights.layer_projection;
  const int64_t width = spec_.layer_embeddings.width;
  auto* const embeddings = At<float>(parts_.layout.layer_embeddings);
  Norm(rows, nullptr, /*weight=*/nullptr, projection.inputs, nullptr);
  Multiply(projection, Normed(projection.inputs), rows.count, embeddings, ElementType::kF32);
  parts_.kernels.layer_embeddings(
      parts_.stream->handle(),
      {.tokens = parts_.inputs.tokens(),
       .table = parts_.weights.layer_embeddings,
       .rows = rows.count,
       .num_layers = std::ssize(spec_.layers),
       .width = width,
       .weight = parts_.weights.layer_norm,
       .eps = spec_.norm_eps,
       .projection_scale = 1 / std::sqrt(static_cast<float>(spec_.hidden_size)),
       .table_scale = std::sqrt(static_cast<float>(width)),
       .sum_scale = std::sqrt(0.5f),
       .x = embeddings});
}

void DeviceDecoder::AddLayerEmbedding(size_t index, const Rows& rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  const int64_t width = spec_.layer_embeddings.width;
  Norm(rows, At<float>(layout.delta), /*weight=*/nullptr, weights.embedding_gate.inputs, nullptr);
  const float* factors = At<float>(layout.layer_embeddings) + static_cast<int64_t>(index) * width;
  int64_t stride = std::ssize(spec_.layers) * width;
  if (keeps_logit_rows_) {
    factors = At<float>(layout.last_layer_embeddings);
    stride = width;
  }
  for (int64_t first = 0; first < rows.count; first += layout.mlp_rows) {
    const int64_t count = std::min(layout.mlp_rows, rows.count - first);
    Multiply(weights.embedding_gate, RowsFrom(first, Normed(weights.embedding_gate.inputs)), count,
             At(layout.gate_up), layout.wide, first);
    const device::RowsOut gated =
        RowsAt(layout.activated, layout.activated_scales, weights.embedding_projection.inputs);
    parts_.kernels.silu_mul(parts_.stream->handle(), {.x = At(layout.gate_up),
                                                      .x_type = layout.wide,
                                                      .rows = count,
                                                      .width = width,
                                                      .out = gated,
                                                      .gelu = true,
                                                      .factors = factors + first * stride,
                                                      .factor_stride = stride});
    Multiply(weights.embedding_projection, gated, count,
             At<float>(layout.delta) + first * spec_.hidden_size, ElementType::kF32, first);
  }
  NormDelta(weights.embedding_norm, rows.count);
}

}  // namespace sluice
