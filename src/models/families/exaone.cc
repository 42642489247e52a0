// EXAONE 4: per-head norms of q and k; norms only after each sublayer. If some layers have a
// window, the other layers have no RoPE. K-EXAONE: norms before sublayers. The first layers have an
// MLP. The later ones have a shared expert, and experts chosen by sigmoid scores plus a bias.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace exaone {
namespace {

// Source: transformers' Exaone4Attention.
Status ReadAttention(const JsonFields& fields, ModelConfig& config) {
  // A pattern of letters is accepted only together with layer_types.
  const json::Value* pattern = fields.Given("sliding_window_pattern");
  if (pattern != nullptr && !pattern->is_integer() && fields.Given("layer_types") == nullptr) {
    return fields.Bad("sliding_window_pattern", "an integer, where there are no layer_types",
                      *pattern);
  }
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindowLayers(fields, {}, config));
  const bool has_windows =
      fields.Given("sliding_window") != nullptr || !fields.Has("sliding_window");
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.rope = slides[i] || !has_windows;
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.has_bias = false;
  }
  return {};
}

// Source: transformers' Exaone4DecoderLayer.
Status ReadExaone4(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadAttention(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms = {.before = "", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "", .after = "post_feedforward_layernorm"};
  }
  return {};
}

// Source: transformers' ExaoneMoeConfig and ExaoneMoeDecoderLayer.
Status ReadExaoneMoe(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadAttention(fields, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .choice_bias = "mlp.e_score_correction_bias"};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 64, .top_k = 8}, moe));
  RETURN_IF_ERROR(ReadSigmoidRouter(fields, {.scale = 2.5, .width = 1024}, moe));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("num_shared_experts", 1, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                   ReadMlpLayerTypes(fields, config, dense.value_or(1)));
  for (size_t i = 0; i < sparse.size(); ++i) {
    if (!sparse[i]) continue;
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(1);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults DefaultsOf(int32_t bos, int32_t eos) {
  return {.vocab_size = 102400,
          .hidden_size = 4096,
          .intermediate_size = 16384,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .kv_heads = 32,
          .max_position_embeddings = 2048,
          .rms_norm_eps = 1e-5,
          .bos_token_id = bos,
          .eos_token_id = eos};
}

}  // namespace
}  // namespace exaone

const ModelFamily kExaone4 = {
    "Exaone4ForCausalLM",
    "exaone4",
    exaone::DefaultsOf(0, 2),
    exaone::ReadExaone4,
    {.models = "EXAONE 4.0 1.2B, 32B",
     .operators =
         "norms only after sublayers; per-head norms; windows; no rope in layers without a window",
     .golden = "tiny-exaone4, tiny-exaone4-full",
     .error = 1.1e-06}};
const ModelFamily kExaoneMoe = {
    "ExaoneMoeForCausalLM",
    "exaone_moe",
    exaone::DefaultsOf(1, 53),
    exaone::ReadExaoneMoe,
    {.models = "K-EXAONE 236B-A23B",
     .operators = "per-head norms; windows; no rope in layers without a window; experts with a "
                  "sigmoid router, a selection bias and scaled routing weights; a shared expert",
     .golden = "tiny-exaone-moe",
     .error = 7e-07}};

}  // namespace sluice
