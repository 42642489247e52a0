// Laguna: per-head norms of q and k; a softplus gate after attention. Layers with a window have a
// separate number of heads and separate RoPE settings. After the first layers, there are a shared
// expert, and experts scored by sigmoids of soft-capped logits, with a selection bias and scaled
// weights.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/kind_ropes.h"
#include "models/registry.h"

namespace sluice {
namespace laguna {
namespace {

// Reads `gating`: a gate per head if absent, true or "per-head"; a gate per number if false or
// "per-element".
Result<AttentionGate> ReadGate(const JsonFields& fields) {
  constexpr const char* kField = "gating";
  const json::Value* given = fields.Given(kField);
  if (given == nullptr) return AttentionGate::kEachHead;
  if (given->is_bool())
    return given->as_bool() ? AttentionGate::kEachHead : AttentionGate::kEachNumber;
  ASSIGN_OR_RETURN(const auto name, fields.String(kField));
  if (name == "per-head") return AttentionGate::kEachHead;
  if (name == "per-element") return AttentionGate::kEachNumber;
  return fields.Bad(kField, "true, false, per-head or per-element", *given);
}

Status ReadHeads(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kField = "num_attention_heads_per_layer";
  constexpr int64_t kMostHeads = 4096;
  ASSIGN_OR_RETURN(const auto heads, fields.Integers(kField, 1, kMostHeads));
  if (!heads) return {};
  if (std::ssize(*heads) != config.num_hidden_layers) {
    return fields.Bad(
        kField, fmt::format("a list of num_hidden_layers {} numbers", config.num_hidden_layers),
        *fields.Given(kField));
  }
  for (size_t i = 0; i < heads->size(); ++i) {
    if ((*heads)[i] % config.num_key_value_heads != 0) {
      return fields.Bad(
          kField, fmt::format("multiples of num_key_value_heads {}", config.num_key_value_heads),
          json::Value((*heads)[i]));
    }
    config.spec.layers[i].attention.num_heads = static_cast<int>((*heads)[i]);
  }
  return {};
}

// Source: transformers' LagunaTopKRouter and LagunaSparseMoeBlock.
Status ReadExperts(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(RefuseField(fields, "moe_apply_router_weight_on_input",
                              "weights of experts that multiply their inputs"));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSigmoid,
                 .choice_bias = "mlp.experts.e_score_correction_bias",
                 .normalize = true};
  RETURN_IF_ERROR(
      ReadExpertCounts(fields, {.num_experts = 256, .top_k = 8, .intermediate_size = 512}, moe));
  ASSIGN_OR_RETURN(const auto scale, fields.Number("moe_routed_scaling_factor", 1e-6, 1e6));
  moe.weight_scale = static_cast<float>(scale.value_or(1));
  ASSIGN_OR_RETURN(const auto cap, fields.Number("moe_router_logit_softcapping", 0, 1e6));
  moe.soft_cap = static_cast<float>(cap.value_or(0));
  ASSIGN_OR_RETURN(const auto shared,
                   fields.Integer("shared_expert_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const std::vector<bool> sparse, ReadMlpLayerTypes(fields, config, 1));
  for (size_t i = 0; i < sparse.size(); ++i) {
    if (!sparse[i]) continue;
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.module = "mlp.shared_expert";
    layer.mlp.intermediate_size = shared.value_or(512);
    layer.moe = moe;
  }
  return {};
}

// Source: transformers' LagunaConfig, LagunaAttention and LagunaRotaryEmbedding.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const AttentionGate gate, ReadGate(fields));
  ASSIGN_OR_RETURN(const std::vector<bool> slides,
                   ReadWindowLayers(fields, {.window = 512, .pattern = 1}, config));
  RETURN_IF_ERROR(
      ReadKindRopes(fields, {.full = {.theta = 500000, .part = 0.5}, .sliding = {.theta = 10000}},
                    slides, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.attention.gate = gate;
    layer.attention.gate_projection = "g_proj";
    layer.attention.gate_is_softplus = true;
    layer.mlp.has_bias = false;
  }
  RETURN_IF_ERROR(ReadHeads(fields, config));
  return ReadExperts(fields, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 100352,
                                      .hidden_size = 2048,
                                      .intermediate_size = 8192,
                                      .num_hidden_layers = 40,
                                      .num_attention_heads = 48,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rope_theta = 500000};

}  // namespace
}  // namespace laguna

const ModelFamily kLaguna = {
    "LagunaForCausalLM",
    "laguna",
    laguna::kDefaults,
    laguna::Read,
    {.models = "Laguna XS.2",
     .operators =
         "per-head norms; a softplus gate after attention; windows in some layers, with their own "
         "number of heads and their own rope; experts with a sigmoid router of soft-capped logits, "
         "a selection bias and scaled routing weights; a shared expert",
     .golden = "tiny-laguna, tiny-laguna-numbers",
     .error = 8.1e-07}};

}  // namespace sluice
