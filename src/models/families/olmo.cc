// OLMoE: one norm over all heads of q and one over all heads of k; experts chosen by softmax. OLMo
// 2 and 3: norms after each sublayer instead of before it; one norm over all heads of q and one
// over all heads of k, before RoPE. In OLMo 3, most layers have a window and unscaled RoPE.
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/rope_frequencies.h"

namespace sluice {
namespace olmo {
namespace {

void DescribeLayers(ModelConfig& config) {
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms = {.before = "", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "", .after = "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kWholeWidth;
    layer.mlp.has_bias = false;
  }
}

// Source: transformers' Olmo2Config and Olmo2DecoderLayer.
Status ReadOlmo2(const JsonFields& fields, ModelConfig& config) {
  DescribeLayers(config);
  return ReadFullAttention(fields, config);
}

// Source: transformers' Olmo3Config and Olmo3Model.
Status ReadOlmo3(const JsonFields& fields, ModelConfig& config) {
  DescribeLayers(config);
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 4096, kDefaultPattern = 4;
  RopeConfig local = {.theta = config.rope.theta};
  RETURN_IF_ERROR(ReadRopeBlocks(fields, config.rope.theta, config, local));
  DescribeRope(config.rope, config.head_dim, config.spec, {RopeTableOf(local, config.head_dim)});
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const bool slides = types ? (*types)[i] == kSlidingAttention
                              : static_cast<int64_t>(i + 1) % kDefaultPattern != 0;
    if (!slides) continue;
    AttentionSpec& attention = config.spec.layers[i].attention;
    attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    attention.rope_table = 1;
  }
  return {};
}

Status ReadLimit(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto limit, fields.Number("clip_qkv", 1e-6, 1e6));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.qkv_limit = static_cast<float>(limit.value_or(0));
  return {};
}

// Reads OLMo, which has layer norms without weights and biases. Source: transformers' OlmoConfig
// and OlmoLayerNorm.
Status ReadOlmo(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  RETURN_IF_ERROR(ReadLimit(fields, config));
  config.spec.norm.has_weights = false;
  for (LayerSpec& layer : config.spec.layers) layer.mlp.has_bias = false;
  return {};
}

// Source: transformers' OlmoeConfig, OlmoeAttention and OlmoeTopKRouter.
Status ReadOlmoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  RETURN_IF_ERROR(RefuseField(fields, "clip_qkv", "limits of normed q and k, and of v"));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 64, .top_k = 8}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(false);
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kWholeWidth;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

// Reads FlexOlmo, which has norms only after sublayers. Source: transformers' FlexOlmoConfig and
// FlexOlmoDecoderLayer.
Status ReadFlexOlmo(const JsonFields& fields, ModelConfig& config) {
  DescribeLayers(config);
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 7, .top_k = 5}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(false);
  for (LayerSpec& layer : config.spec.layers) {
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kOlmoDefaults = {.vocab_size = 50304,
                                          .hidden_size = 4096,
                                          .intermediate_size = 11008,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 2048,
                                          .rms_norm_eps = 1e-5,
                                          .norm_eps_field = "",
                                          .has_layer_norms = true,
                                          .eos_token_id = 50279};
constexpr ConfigDefaults kFlexDefaults = {.vocab_size = 100352,
                                          .hidden_size = 4096,
                                          .intermediate_size = 11008,
                                          .num_hidden_layers = 32,
                                          .num_attention_heads = 32,
                                          .max_position_embeddings = 4096,
                                          .rope_theta = 500000,
                                          .eos_token_id = 100257};
constexpr ConfigDefaults kOlmoeDefaults = {.vocab_size = 50304,
                                           .hidden_size = 2048,
                                           .intermediate_size = 2048,
                                           .num_hidden_layers = 16,
                                           .num_attention_heads = 16,
                                           .max_position_embeddings = 4096,
                                           .rms_norm_eps = 1e-5,
                                           .eos_token_id = 50279};
constexpr ConfigDefaults DefaultsOf(double theta) {
  return {.vocab_size = 50304,
          .hidden_size = 4096,
          .intermediate_size = 11008,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .max_position_embeddings = 2048,
          .rms_norm_eps = 1e-5,
          .rope_theta = theta,
          .eos_token_id = 50279};
}

}  // namespace
}  // namespace olmo

const ModelFamily kOlmo = {"OlmoForCausalLM",
                           "olmo",
                           olmo::kOlmoDefaults,
                           olmo::ReadOlmo,
                           {.models = "OLMo 1B, 7B",
                            .operators = "layer norms without weights",
                            .golden = "tiny-olmo, tiny-olmo-limit",
                            .error = 6.7e-07}};
const ModelFamily kFlexOlmo = {"FlexOlmoForCausalLM",
                               "flex_olmo",
                               olmo::kFlexDefaults,
                               olmo::ReadFlexOlmo,
                               {.models = "FlexOlmo 7x7B",
                                .operators = "like OLMo 2; experts with a softmax router",
                                .golden = "tiny-flex-olmo",
                                .error = 9.2e-07}};
const ModelFamily kOlmoe = {
    "OlmoeForCausalLM",
    "olmoe",
    olmo::kOlmoeDefaults,
    olmo::ReadOlmoe,
    {.models = "OLMoE 1B-7B",
     .operators = "norms of q and k over all heads; experts with a softmax router",
     .golden = "tiny-olmoe",
     .error = 8.9e-07}};
const ModelFamily kOlmo2 = {
    "Olmo2ForCausalLM",
    "olmo2",
    olmo::DefaultsOf(10000),
    olmo::ReadOlmo2,
    {.models = "OLMo 2 1B to 32B",
     .operators = "norms only after sublayers; norms of q and k over all heads",
     .golden = "tiny-olmo2",
     .error = 9.1e-07}};
const ModelFamily kOlmo3 = {
    "Olmo3ForCausalLM",
    "olmo3",
    olmo::DefaultsOf(500000),
    olmo::ReadOlmo3,
    {.models = "OLMo 3 7B, 32B",
     .operators = "like OLMo 2; windows in three of four layers, YaRN in the others",
     .golden = "tiny-olmo3",
     .error = 8.2e-07}};

}  // namespace sluice
