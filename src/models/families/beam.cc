// Beam: norms before and after sublayers, and of heads of q and k; a gate after attention with a
// bias per head; soft-capped logits. Most layers have a window. The others have no RoPE, but a
// temperature that grows with the position. The residual's weight decreases with depth. After the
// first layers, the MLP is replaced by experts as in DeepSeek V3, without a shared expert.
#include "models/family_fields.h"
#include "models/kind_ropes.h"
#include "models/registry.h"

namespace sluice {
namespace beam {
namespace {

Result<std::vector<bool>> ReadWindows(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(
      std::vector<bool> slides,
      ReadWindowLayers(fields, {.window = 512, .pattern = 6, .pattern_field = ""}, config));
  if (fields.Given("layer_types") != nullptr || !slides.back()) return slides;
  slides.back() = false;
  config.spec.layers.back().attention.span.window = 0;
  return slides;
}

// The n-th sublayer result d, counting from 2, changes the residual r to r' = d / sqrt(n) + r *
// sqrt((n - 1) / n). This program stores R = r * sqrt(n) instead, so that R' = R + d. A norm of R
// equals the norm of r if its epsilon is multiplied by n. Source: transformers'
// depth_scaled_residual_add.
void ScaleByDepth(DecoderSpec& spec) {
  float count = 1;
  for (LayerSpec& layer : spec.layers) {
    layer.attention_norms.eps_factor = count++;
    layer.mlp_norms.eps_factor = count++;
  }
  spec.final_norm_eps_factor = count;
}

// Source: transformers' BeamConfig, BeamAttention, BeamTopKRouter and compute_attention_scaling.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> slides, ReadWindows(fields, config));
  if (fields.Given("rope_parameters") != nullptr) {
    RETURN_IF_ERROR(ReadKindRopes(fields, {.may_be_null = true}, slides, config));
  } else {
    for (size_t i = 0; i < slides.size(); ++i) config.spec.layers[i].attention.rope = slides[i];
  }
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "mlp.gate.e_score_correction_bias"};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 256, .top_k = 8, .intermediate_size = 2560}, moe));
  RETURN_IF_ERROR(ReadExpertGroups(fields, {.groups = 8, .kept = 4}, moe));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(2.5));
  ASSIGN_OR_RETURN(const auto cap, fields.Number("final_logit_softcapping", 0, 1e6));
  const bool has_none = fields.Has("final_logit_softcapping") && !cap;
  config.spec.logit_soft_cap = has_none ? 0 : static_cast<float>(cap.value_or(30));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 3));
  for (size_t i = 0; i < slides.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention_norms.after = "post_attention_layernorm";
    layer.mlp_norms = {.before = "pre_feedforward_layernorm",
                       .after = "post_feedforward_layernorm"};
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.gate = AttentionGate::kEachNumber;
    layer.attention.gate_bias = "gate_bias";
    if (!layer.attention.rope)
      layer.attention.temperature_tuning = {.floor_scale = 2048, .power = 0.1};
    layer.mlp.has_bias = false;
    if (!sparse[i]) continue;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  ScaleByDepth(config.spec);
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 151936,
                                      .hidden_size = 5120,
                                      .intermediate_size = 20480,
                                      .num_hidden_layers = 52,
                                      .num_attention_heads = 48,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 8192};

}  // namespace
}  // namespace beam

const ModelFamily kBeam = {
    "BeamForCausalLM",
    "beam",
    beam::kDefaults,
    beam::Read,
    {.models = "Beam 1.0 501B-A23B",
     .operators = "norms before and after sublayers; per-head norms; a gate after attention; "
                  "windows; layers without a window have a temperature instead of rope; residual "
                  "weights that decrease with depth; experts with a group-limited sigmoid router "
                  "and a selection bias; a soft cap of the logits",
     .golden = "tiny-beam",
     .error = 6.5e-07}};

}  // namespace sluice
