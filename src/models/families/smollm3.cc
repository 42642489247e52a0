// SmolLM3: like Llama, but without RoPE in every fourth layer.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace smollm3 {
namespace {

// Source: transformers' SmolLM3Config and SmolLM3Attention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, ReadWantedWindow(fields, std::nullopt));
  ASSIGN_OR_RETURN(const std::vector<bool> rope, ReadRopeLayers(fields, config));
  for (size_t i = 0; i < rope.size(); ++i) {
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.rope = rope[i];
    const bool slides = types ? (*types)[i] == kSlidingAttention : window && !rope[i];
    if (!slides) continue;
    if (!window) return fields.Missing("sliding_window");
    attention.span.window = static_cast<int32_t>(*window);
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 128256,
                                      .hidden_size = 2048,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 36,
                                      .num_attention_heads = 16,
                                      .kv_heads = 4,
                                      .max_position_embeddings = 32768,
                                      .rope_theta = 2e6,
                                      .bos_token_id = 128000,
                                      .eos_token_id = 128001,
                                      .tie_word_embeddings = true};

}  // namespace
}  // namespace smollm3

const ModelFamily kSmolLm3 = {
    "SmolLM3ForCausalLM",
    "smollm3",
    smollm3::kDefaults,
    smollm3::Read,
    {.models = "SmolLM3 3B",
     .operators = "layers without rope; a window in these layers, if configured",
     .golden = "tiny-smollm3",
     .error = 1.1e-06}};

}  // namespace sluice
