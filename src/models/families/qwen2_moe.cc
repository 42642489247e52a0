// Qwen2-MoE (Qwen1.5-MoE, Qwen2-57B-A14B): the attention of Qwen 2; most layers have experts, and a
// shared expert whose result is multiplied by a gate.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace qwen2_moe {
namespace {

// Sets the sliding window of the layers that have one. `layer_types` takes precedence; without it,
// an enabled window applies to layers 0, 2, 4, ... below max_window_layers.
Status ReadEverySecondWindow(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, ReadWantedWindow(fields, kDefaultQwenWindow));
  ASSIGN_OR_RETURN(const auto end, fields.Integer("max_window_layers", 0, kMaxConfigLayers));
  constexpr int64_t kDefaultEnd = 28;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides =
        types ? (*types)[i] == kSlidingAttention
              : window && i % 2 == 0 && static_cast<int64_t>(i) < end.value_or(kDefaultEnd);
    if (!slides) continue;
    if (!window) return fields.Missing("sliding_window");
    config.spec.layers[i].attention.span.window = static_cast<int32_t>(*window);
  }
  return {};
}

// Source: transformers' Qwen2MoeConfig and Qwen2MoeSparseMoeBlock.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadEverySecondWindow(fields, config));
  ASSIGN_OR_RETURN(const auto qkv_bias, fields.Bool("qkv_bias"));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 60, .top_k = 4, .intermediate_size = 1408}, moe));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(false);
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts, ReadSparseLayers(fields, config));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qkv_bias = qkv_bias.value_or(true);
    layer.attention.output_bias = false;
    layer.mlp.has_bias = false;
    if (!has_experts[i]) continue;
    layer.mlp.module = "mlp.shared_expert";
    layer.mlp.intermediate_size = shared.value_or(5632);
    layer.mlp.output_gate = "mlp.shared_expert_gate";
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 2048,
                                      .intermediate_size = 5632,
                                      .num_hidden_layers = 24,
                                      .num_attention_heads = 16,
                                      .kv_heads = 16,
                                      .max_position_embeddings = 32768};

}  // namespace
}  // namespace qwen2_moe

const ModelFamily kQwen2Moe = {
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    qwen2_moe::kDefaults,
    qwen2_moe::Read,
    {.models = "Qwen1.5-MoE A2.7B, Qwen2 57B-A14B",
     .operators = "like Qwen2; experts with a softmax router; a shared expert with a gate",
     .golden = "tiny-qwen2-moe",
     .error = 9.8e-07}};

}  // namespace sluice
