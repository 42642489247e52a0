#include "models/decoder_spec.h"

#include <algorithm>

namespace sluice {

DecoderSpec DescribePlainDecoder(const ModelConfig& config) {
  DecoderSpec spec;
  spec.vocab_size = config.vocab_size;
  spec.hidden_size = config.hidden_size;
  spec.tied_head = config.tie_word_embeddings;
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  std::optional<kernels::Llama3RopeScaling> scaling;
  if (config.rope_scaling) {
    scaling = kernels::Llama3RopeScaling{
        .factor = config.rope_scaling->factor,
        .low_freq_factor = config.rope_scaling->low_freq_factor,
        .high_freq_factor = config.rope_scaling->high_freq_factor,
        .original_max_position = config.rope_scaling->original_max_position_embeddings};
  }
  spec.rope_frequencies =
      kernels::RopeFrequencies(static_cast<int>(config.head_dim), config.rope_theta, scaling);
  LayerSpec layer;
  layer.attention.num_heads = static_cast<int>(config.num_attention_heads);
  layer.attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
  layer.attention.head_dim = static_cast<int>(config.head_dim);
  layer.attention.qkv_bias = config.attention_bias;
  layer.attention.output_bias = config.attention_bias;
  layer.mlp.module = "mlp";
  layer.mlp.intermediate_size = config.intermediate_size;
  layer.mlp.has_bias = config.mlp_bias;
  spec.layers.assign(static_cast<size_t>(config.num_hidden_layers), layer);
  for (size_t i = 0; i < std::min(spec.layers.size(), config.layer_attention.size()); ++i) {
    const LayerAttention& attention = config.layer_attention[i];
    spec.layers[i].attention.rope = attention.rope;
    spec.layers[i].attention.span = {.chunk = static_cast<int32_t>(attention.chunk),
                                     .window = static_cast<int32_t>(attention.window)};
  }
  return spec;
}

std::vector<AttentionSpan> DecoderSpec::Spans() const {
  std::vector<AttentionSpan> spans;
  for (const LayerSpec& layer : layers) spans.push_back(layer.attention.span);
  return spans;
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
  return compute_type == ElementType::kBF16 &&
         std::any_of(layers.begin(), layers.end(),
                     [](const LayerSpec& layer) { return layer.moe.has_value(); });
}

}  // namespace sluice
