// Qwen2-MoE (Qwen1.5-MoE, Qwen2-57B-A14B): the attention of Qwen 2; in most layers experts, and
// beside them one that every token visits, whose result is multiplied by a gate of its own.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Source: transformers' Qwen2MoeConfig and Qwen2MoeSparseMoeBlock.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto qkv_bias, fields.Bool("qkv_bias"));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation};
  constexpr int64_t kDefaultTopK = 4;
  RETURN_IF_ERROR(ReadExpertCounts(fields, kDefaultTopK, moe));
  ASSIGN_OR_RETURN(moe.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const int64_t shared,
                   fields.RequiredInteger("shared_expert_intermediate_size", 1, kMaxConfigWidth));
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
    layer.mlp.intermediate_size = shared;
    layer.mlp.output_gate = "mlp.shared_expert_gate";
    layer.moe = moe;
  }
  return {};
}

}  // namespace

const ModelFamily kQwen2Moe = {
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    {.kv_heads = 16},
    Read,
    {.models = "Qwen1.5-MoE A2.7B, Qwen2 57B-A14B",
     .operators = "as Qwen2; experts by softmax, a shared one with a gate",
     .golden = "tiny-qwen2-moe",
     .error = 9.8e-07}};

}  // namespace sluice
