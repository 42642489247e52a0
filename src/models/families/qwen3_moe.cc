// Qwen3-MoE, and Qwen3-VL with experts: the attention of Qwen3; most layers have experts instead of
// the MLP, chosen by a softmax over all experts. The softmax weights scale the experts' outputs.
#include "models/families/qwen3.h"
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace qwen3_moe {
namespace {

constexpr const char* kRouter = "mlp.gate";
constexpr const char* kExperts = "mlp.experts";

// If a window is enabled, it applies to every layer.
Status ReadEveryWindow(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types, ReadLayerTypes(fields, config, {kFullAttention}));
  ASSIGN_OR_RETURN(const auto window, ReadWantedWindow(fields, kDefaultQwenWindow));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.span.window = static_cast<int32_t>(window.value_or(0));
  return {};
}

// `moe`: the fields in which the families differ.
Status ReadLayers(const JsonFields& fields, const ExpertDefaults& defaults, MoeSpec moe,
                  ModelConfig& config) {
  moe.activation = config.activation;
  RETURN_IF_ERROR(ReadExpertCounts(fields, defaults, moe));
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts, ReadSparseLayers(fields, config));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
    if (!has_experts[i]) continue;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

// Source: transformers' Qwen3MoeConfig, Qwen3MoeModel and Qwen3MoeDecoderLayer.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadEveryWindow(fields, config));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  return ReadLayers(fields, {.num_experts = 128, .top_k = 8, .intermediate_size = 768},
                    {.router_module = kRouter,
                     .experts_module = kExperts,
                     .normalize = normalize.value_or(false)},
                    config);
}

// Published tensors that contain all experts have the shape [experts, in, out]; transformers saves
// [experts, out, in]. Source: transformers' Qwen3VLMoeTextConfig, Qwen3VLMoeTextTopKRouter and its
// conversion.
Status ReadVl(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLayers(fields, {.num_experts = 60, .top_k = 4, .intermediate_size = 1408},
                             {.router_module = kRouter,
                              .experts_module = kExperts,
                              .fused_transposed = true,
                              .fused_either = true,
                              .normalize = true},
                             config));
  return ReadQwen3VlImages(fields, config);
}

constexpr ConfigDefaults kVlDefaults = {.vocab_size = 151936,
                                        .hidden_size = 2048,
                                        .intermediate_size = 5632,
                                        .num_hidden_layers = 24,
                                        .num_attention_heads = 16,
                                        .kv_heads = 16,
                                        .max_position_embeddings = 128000,
                                        .rope_theta = 500000,
                                        .tie_word_embeddings = true,
                                        .is_nested = true};
constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 2048,
                                      .intermediate_size = 6144,
                                      .num_hidden_layers = 24,
                                      .num_attention_heads = 32,
                                      .kv_heads = 4,
                                      .max_position_embeddings = 32768};

}  // namespace
}  // namespace qwen3_moe

const ModelFamily kQwen3Moe = {"Qwen3MoeForCausalLM",
                               "qwen3_moe",
                               qwen3_moe::kDefaults,
                               qwen3_moe::Read,
                               {.models = "Qwen3 30B-A3B, 235B-A22B",
                                .operators = "like Qwen3; experts with a softmax router",
                                .golden = "tiny-qwen3-moe-mixed and four quantized ones",
                                .error = 1.3e-05}};

const ModelFamily kQwen3VlMoe = {
    "Qwen3VLMoeForConditionalGeneration",
    "qwen3_vl_moe",
    qwen3_moe::kVlDefaults,
    qwen3_moe::ReadVl,
    {.models = "Qwen3-VL 30B-A3B, 235B-A22B",
     .operators = "like Qwen3-VL; experts with a softmax router and normalized routing weights",
     .golden = "tiny-qwen3-vl-moe",
     .error = 9.2e-07}};

}  // namespace sluice
