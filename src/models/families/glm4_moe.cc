// GLM-4.5 (and Air), 4.6: rope on half of each head, a norm of heads of q and k in the large one;
// behind the first layers experts, chosen by sigmoids with a bias for the choice alone, whose
// scaled weights add up to a constant, beside a shared one.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Experts are chosen among all of them, not in groups.
Status CheckGroups(const JsonFields& fields) {
  for (const char* name : {"n_group", "topk_group"}) {
    ASSIGN_OR_RETURN(const auto groups, fields.Integer(name, 1, 4096));
    if (groups.value_or(1) == 1) continue;
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} {} is not supported, only 1: experts are chosen among all", name, *groups),
        name);
  }
  return {};
}

// Source: transformers' Glm4MoeConfig, Glm4MoeAttention and Glm4MoeTopkRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  RETURN_IF_ERROR(CheckGroups(fields));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "mlp.gate.e_score_correction_bias"};
  constexpr int64_t kMaxExperts = 4096, kDefaultTopK = 8;
  ASSIGN_OR_RETURN(auto experts, fields.Integer("n_routed_experts", 1, kMaxExperts));
  if (!experts) {
    ASSIGN_OR_RETURN(experts, fields.Integer("num_local_experts", 1, kMaxExperts));
  }
  if (!experts) return fields.Missing("n_routed_experts");
  moe.num_experts = *experts;
  ASSIGN_OR_RETURN(const auto top_k, fields.Integer("num_experts_per_tok", 1, moe.num_experts));
  moe.top_k = top_k.value_or(kDefaultTopK);
  ASSIGN_OR_RETURN(moe.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(true);
  ASSIGN_OR_RETURN(const auto scale, fields.Number("routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(1));
  ASSIGN_OR_RETURN(const auto shared, fields.Integer("n_shared_experts", 0, kMaxExperts));
  ASSIGN_OR_RETURN(const auto dense, fields.Integer("first_k_dense_replace", 0, kMaxConfigLayers));
  ASSIGN_OR_RETURN(const auto qk_norm, fields.Bool("use_qk_norm"));
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(0);
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.output_bias = false;
    layer.attention.qk_norm = qk_norm.value_or(false) ? QkNorm::kBeforeRope : QkNorm::kNone;
    layer.mlp.has_bias = false;
    if (static_cast<int64_t>(i) < dense.value_or(1)) continue;
    layer.mlp.module = "mlp.shared_experts";
    layer.mlp.intermediate_size = moe.intermediate_size * shared.value_or(1);
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.head_dim = 128,
                                      .kv_heads = 8,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 10000,
                                      .partial_rotary_factor = 0.5};

}  // namespace

const ModelFamily kGlm4Moe = {"Glm4MoeForCausalLM",
                              "glm4_moe",
                              kDefaults,
                              Read,
                              {.models = "GLM-4.5 Air, GLM-4.5, 4.6",
                               .operators = "rope on half of a head; experts by sigmoids with a "
                                            "bias for the choice, scaled weights; a shared expert",
                               .golden = "tiny-glm4-moe",
                               .error = 8.7e-07}};

}  // namespace sluice
