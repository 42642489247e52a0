// Mistral: as Llama, without biases; some releases with a sliding window.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Source: transformers' MistralConfig. A window that is null is none; one that is absent is the
// library's default.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 4096;
  if (!window && !fields.Has("sliding_window")) window = kDefaultWindow;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
    const bool slides = types ? (*types)[i] == kSlidingAttention : window.has_value();
    if (!slides) continue;
    if (!window) return fields.Missing("sliding_window");
    layer.attention.span.window = static_cast<int32_t>(*window);
  }
  return {};
}

}  // namespace

const ModelFamily kMistral = {"MistralForCausalLM", "mistral", {.kv_heads = 8}, Read};

}  // namespace sluice
