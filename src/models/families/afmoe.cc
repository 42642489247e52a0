// Trinity: scaled embeddings; norms before and after every sublayer; per-head norms of q and k; a
// gate after attention. Most layers have a window; the other layers have no RoPE. The first layers
// have an MLP. The later ones have a shared expert, and experts chosen by sigmoid scores plus a
// bias.
#include <cmath>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace afmoe {
namespace {

// Source: transformers' AfmoeConfig, AfmoeAttention and AfmoeTokenChoiceRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(
      const std::vector<bool> slides,
      ReadWindowLayers(fields, {.window = 1024, .pattern_field = "global_attn_every_n_layers"},
                       config));
  MoeSpec moe = {.router_module = "mlp.router.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "mlp.expert_bias",
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 64, .top_k = 6, .intermediate_size = 1408}, moe));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("route_scale", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(1));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("num_shared_experts", 0, kMaxConfigExperts));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("num_dense_layers", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto scales_embedding, fields.Bool("mup_enabled"));
  if (scales_embedding.value_or(false))
    config.spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention_norms.after = "post_attention_layernorm";
    layer.mlp_norms = {.before = "pre_mlp_layernorm", .after = "post_mlp_layernorm"};
    layer.attention.rope = slides[i];
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.gate = AttentionGate::kEachNumber;
    layer.mlp.has_bias = false;
    if (static_cast<int64_t>(i) < dense.value_or(1)) continue;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(2);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 200192,
                                      .hidden_size = 2048,
                                      .intermediate_size = 6144,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 16,
                                      .head_dim = 128,
                                      .max_position_embeddings = 16384,
                                      .rms_norm_eps = 1e-5};

}  // namespace
}  // namespace afmoe

const ModelFamily kAfmoe = {
    "AfmoeForCausalLM",
    "afmoe",
    afmoe::kDefaults,
    afmoe::Read,
    {.models = "Trinity Nano, Mini, Large",
     .operators = "norms before and after sublayers; per-head norms; a gate after attention; "
                  "windows; no rope in layers without a window; scaled embeddings; experts with a "
                  "sigmoid router, a selection bias and scaled routing weights; a shared expert",
     .golden = "tiny-afmoe",
     .error = 7.8e-07}};

}  // namespace sluice
