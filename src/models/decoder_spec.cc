#include "models/decoder_spec.h"

#include <algorithm>
#include <cmath>

namespace sluice {

float AttentionSpec::softmax_scale() const {
  return scale.value_or(1 / std::sqrt(static_cast<float>(head_dim)));
}

void DecoderSpec::FitRope(int64_t max_context) {
  if (!long_rope_table.empty() && max_context > short_context)
    rope_tables.front() = long_rope_table;
}

std::vector<AttentionSpan> DecoderSpec::Spans() const {
  std::vector<AttentionSpan> spans;
  for (const LayerSpec& layer : layers) spans.push_back(layer.attention.span);
  return spans;
}

int64_t DecoderSpec::NumMoeLayers() const {
  return std::count_if(layers.begin(), layers.end(),
                       [](const LayerSpec& layer) { return layer.moe.has_value(); });
}

const LayerSpec* DecoderSpec::FirstMoeLayer() const {
  const auto found = std::find_if(layers.begin(), layers.end(),
                                  [](const LayerSpec& layer) { return layer.moe.has_value(); });
  return found == layers.end() ? nullptr : &*found;
}

int64_t DecoderSpec::WidestInput() const {
  int64_t widest = hidden_size;
  for (const LayerSpec& layer : layers) {
    widest = std::max({widest, layer.attention.q_width(), layer.mlp.intermediate_size,
                       layer.moe ? layer.moe->intermediate_size : 0});
  }
  return widest;
}

int64_t DecoderSpec::WidestOutput() const {
  int64_t widest = hidden_size;
  for (const LayerSpec& layer : layers) {
    widest = std::max({widest, layer.attention.qkv_width(), 2 * layer.mlp.intermediate_size});
  }
  return widest;
}

bool DecoderSpec::SplitsInputs(ElementType compute_type) const {
  return compute_type == ElementType::kBF16 && NumMoeLayers() > 0;
}

}  // namespace sluice
