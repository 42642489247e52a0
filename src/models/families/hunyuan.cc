// Hunyuan dense and A13B: like Llama, but with per-head norms of q and k after RoPE, whose base is
// raised by alpha. A13B has experts chosen by softmax scores, and a shared expert. Hy3: per-head
// norms before RoPE, and experts chosen by sigmoid scores plus a bias.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace hunyuan {
namespace {

// Source: transformers' HunYuanDenseV1Attention.
Status ReadDense(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kAfterRope;
    layer.attention.q_norm = "query_layernorm";
    layer.attention.k_norm = "key_layernorm";
    layer.mlp.has_bias = false;
  }
  return {};
}

// Returns the number of experts per token in each layer, from a single number or a list.
Result<std::vector<int64_t>> ReadTopK(const JsonFields& fields, const ModelConfig& config,
                                      int64_t num_experts) {
  constexpr const char* kField = "moe_topk";
  const auto num_layers = static_cast<size_t>(config.num_hidden_layers);
  const json::Value* given = fields.Given(kField);
  if (given == nullptr || !given->is_array()) {
    ASSIGN_OR_RETURN(const auto one, fields.Integer(kField, 1, num_experts));
    return std::vector<int64_t>(num_layers, one.value_or(1));
  }
  ASSIGN_OR_RETURN(auto list, fields.Integers(kField, 1, num_experts));
  if (list->size() == num_layers) return *std::move(list);
  return fields.Bad(kField, "a number, or one for each layer", *given);
}

// Source: transformers' HunYuanMoEV1Gate and HunYuanMoEV1Moe.
Status ReadMoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadDense(fields, config));
  ASSIGN_OR_RETURN(const auto experts, fields.Integer("num_experts", 1, kMaxConfigExperts));
  MoeSpec moe = {.router_module = "mlp.gate.wg",
                 .experts_module = "mlp.experts",
                 .num_experts = experts.value_or(1),
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .normalize = true};
  ASSIGN_OR_RETURN(const std::vector<int64_t> top_k, ReadTopK(fields, config, moe.num_experts));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.module = "mlp.shared_mlp";
    layer.moe = moe;
    layer.moe->top_k = top_k[i];
  }
  return {};
}

// Source: transformers' HYV3Config, HYV3TopKRouter and HYV3MoE.
Status ReadHy3(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  MoeSpec moe = {.router_module = "mlp.router.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "mlp.expert_bias",
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 192, .top_k = 8, .intermediate_size = 1536}, moe));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("router_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(2.826));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("num_shared_experts", 1, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(1);
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 1));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    if (!sparse[i]) continue;
    layer.mlp.module = "mlp.shared_mlp";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(1);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 290943,
                                      .hidden_size = 4096,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2,
                                      .takes_rope_alpha = true};
constexpr ConfigDefaults kHy3Defaults = {.vocab_size = 120832,
                                         .hidden_size = 4096,
                                         .intermediate_size = 13312,
                                         .num_hidden_layers = 80,
                                         .num_attention_heads = 64,
                                         .kv_heads = 8,
                                         .head_dim = 128,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 11158840};

}  // namespace
}  // namespace hunyuan

const ModelFamily kHunYuanDenseV1 = {
    "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_dense",
    hunyuan::kDefaults,
    hunyuan::ReadDense,
    {.models = "Hunyuan 0.5B, 1.8B, 4B, 7B",
     .operators = "per-head norms after rope; rope with a base that `alpha` increases",
     .golden = "tiny-hunyuan",
     .error = 6.8e-07}};
const ModelFamily kHunYuanMoeV1 = {"HunYuanMoEV1ForCausalLM",
                                   "hunyuan_v1_moe",
                                   hunyuan::kDefaults,
                                   hunyuan::ReadMoe,
                                   {.models = "Hunyuan A13B",
                                    .operators = "like Hunyuan; experts with a softmax router and "
                                                 "normalized routing weights; a shared expert",
                                    .golden = "tiny-hunyuan-moe",
                                    .error = 7.7e-07}};
const ModelFamily kHyV3 = {
    "HYV3ForCausalLM",
    "hy_v3",
    hunyuan::kHy3Defaults,
    hunyuan::ReadHy3,
    {.models = "Hy3",
     .operators = "per-head norms; experts with a sigmoid router, a selection bias and scaled "
                  "routing weights; a shared expert",
     .golden = "tiny-hy3",
     .error = 7.6e-07}};

}  // namespace sluice
