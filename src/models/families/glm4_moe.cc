// GLM-4.5 (and Air) and 4.6: RoPE on half of each head, and per-head norms of q and k in the large
// model. After the first layers, layers have experts and a shared expert. Experts are chosen by
// sigmoid scores plus a bias that affects only the choice, optionally by groups. Their weights are
// scaled to a constant sum.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace glm4_moe {
namespace {

struct LayerDefaults {
  int64_t top_k = 8, width = 1408;
  double scale = 1;
  int64_t num_dense = 1;
  bool qk_norm = false;
};

// Source: transformers' Glm4MoeConfig, Glm4MoeAttention and Glm4MoeTopkRouter.
Status ReadLayers(const JsonFields& fields, const LayerDefaults& defaults, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .choice_bias = "mlp.gate.e_score_correction_bias"};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 128, .top_k = defaults.top_k}, moe));
  RETURN_IF_ERROR(
      ReadSigmoidRouter(fields, {.scale = defaults.scale, .width = defaults.width}, moe));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto qk_norm, fields.Bool("use_qk_norm"));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.output_bias = false;
    layer.attention.qk_norm =
        qk_norm.value_or(defaults.qk_norm) ? QkNorm::kBeforeRope : QkNorm::kNone;
    layer.mlp.has_bias = false;
    if (static_cast<int64_t>(i) < dense.value_or(defaults.num_dense)) continue;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(1);
    layer.moe = moe;
  }
  return {};
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(1);
  return ReadLayers(fields, {}, config);
}

// Reads Solar Open, which has experts in every layer and no per-head norms. Source: transformers'
// SolarOpenConfig and SolarOpenDecoderLayer.
Status ReadSolar(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLayers(fields, {.width = 1280, .num_dense = 0}, config));
  for (LayerSpec& layer : config.spec.layers) layer.attention.qk_norm = QkNorm::kNone;
  return {};
}

// Reads Sarvam MoE, which has other module names. Source: transformers' SarvamMoEConfig and its
// conversion.
Status ReadSarvam(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(
      ReadLayers(fields, {.top_k = 6, .width = 1024, .scale = 2.5, .qk_norm = true}, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.module = "attention";
    layer.attention.qkv_projection = "query_key_value";
    layer.attention.output_projection = "dense";
    layer.attention.q_norm = "query_layernorm";
    layer.attention.k_norm = "key_layernorm";
    if (layer.moe) layer.moe->choice_bias = "mlp.gate.expert_bias";
  }
  return {};
}

constexpr ConfigDefaults kSolarDefaults = {.vocab_size = 196608,
                                           .hidden_size = 4096,
                                           .intermediate_size = 10944,
                                           .num_hidden_layers = 48,
                                           .num_attention_heads = 64,
                                           .kv_heads = 8,
                                           .head_dim = 128,
                                           .max_position_embeddings = 131072,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 1e6,
                                           .partial_rotary_factor = 1};
constexpr FieldAlias kSarvamAliases[] = {{"num_experts", "n_routed_experts"},
                                         {"num_shared_experts", "n_shared_experts"},
                                         {"use_qkv_bias", "attention_bias"}};
constexpr ConfigDefaults kSarvamDefaults = {.vocab_size = 262144,
                                            .hidden_size = 4096,
                                            .intermediate_size = 8192,
                                            .num_hidden_layers = 19,
                                            .num_attention_heads = 64,
                                            .kv_heads = 4,
                                            .head_dim = 64,
                                            .max_position_embeddings = 131072,
                                            .rope_theta = 8e6,
                                            .partial_rotary_factor = 1,
                                            .eos_token_id = 1,
                                            .aliases = kSarvamAliases};
// Source: transformers' Glm4vMoeTextConfig and Glm4vMoeTextAttention.
Status ReadVision(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLayers(fields, {}, config));
  for (LayerSpec& layer : config.spec.layers) layer.attention.qk_norm = QkNorm::kNone;
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(1);
  return ReadRopeAxes(fields, {8, 12, 12}, /*interleaves=*/false, config);
}

constexpr ConfigDefaults kVisionDefaults = {.vocab_size = 151424,
                                            .hidden_size = 4096,
                                            .intermediate_size = 10944,
                                            .num_hidden_layers = 46,
                                            .num_attention_heads = 96,
                                            .kv_heads = 8,
                                            .max_position_embeddings = 65536,
                                            .rms_norm_eps = 1e-5,
                                            .partial_rotary_factor = 0.5,
                                            .attention_bias = true,
                                            .is_nested = true};
constexpr ConfigDefaults kDefaults = {.vocab_size = 151552,
                                      .hidden_size = 4096,
                                      .intermediate_size = 10944,
                                      .num_hidden_layers = 46,
                                      .num_attention_heads = 96,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .partial_rotary_factor = 0.5};

}  // namespace
}  // namespace glm4_moe

const ModelFamily kGlm4Moe = {
    "Glm4MoeForCausalLM",
    "glm4_moe",
    glm4_moe::kDefaults,
    glm4_moe::Read,
    {.models = "GLM-4.5 Air, GLM-4.5, 4.6",
     .operators = "rope on half of a head; experts with a group-limited sigmoid router, a "
                  "selection bias and scaled routing weights; a shared expert",
     .golden = "tiny-glm4-moe, tiny-glm4-moe-groups",
     .error = 8.7e-07}};
const ModelFamily kGlm4vMoe = {
    "Glm4vMoeForConditionalGeneration",
    "glm4v_moe",
    glm4_moe::kVisionDefaults,
    glm4_moe::ReadVision,
    {.models = "GLM-4.5V, GLM-4.6V",
     .operators =
         "like GLM-4.5 without its draft layer; M-RoPE (time, row, column); images like GLM-4.1V",
     .golden = "tiny-glm4v-moe",
     .error = 2.9e-06}};

const ModelFamily kSolarOpen = {"SolarOpenForCausalLM",
                                "solar_open",
                                glm4_moe::kSolarDefaults,
                                glm4_moe::ReadSolar,
                                {.models = "Solar Open 100B",
                                 .operators = "like GLM-4.5, with rope on whole heads",
                                 .golden = "tiny-solar-open",
                                 .error = 5.5e-07}};
const ModelFamily kSarvamMoe = {
    "Glm4MoeForCausalLM",
    "sarvam_moe",
    glm4_moe::kSarvamDefaults,
    glm4_moe::ReadSarvam,
    {.models = "Sarvam 30B",
     .operators = "like GLM-4.5, with rope on whole heads; per-head norms",
     .golden = "tiny-sarvam-moe",
     .error = 6.8e-07},
    nullptr,
    "",
    "SarvamMoEForCausalLM"};

}  // namespace sluice
