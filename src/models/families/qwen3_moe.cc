// Qwen3-MoE: the attention of Qwen3; in most layers experts in place of the MLP, chosen by a
// softmax over all of them, whose weights scale the experts' outputs.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Source: transformers' Qwen3MoeConfig and Qwen3MoeDecoderLayer.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  MoeSpec moe = {.router_module = "mlp.gate",
                 .experts_module = "mlp.experts",
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSoftmax};
  RETURN_IF_ERROR(ReadExpertCounts(fields, std::nullopt, moe));
  ASSIGN_OR_RETURN(moe.intermediate_size,
                   fields.RequiredInteger("moe_intermediate_size", 1, kMaxConfigWidth));
  ASSIGN_OR_RETURN(const auto normalize, fields.Bool("norm_topk_prob"));
  moe.normalize = normalize.value_or(false);
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

}  // namespace

const ModelFamily kQwen3Moe = {"Qwen3MoeForCausalLM",
                               "qwen3_moe",
                               {.kv_heads = 4},
                               Read,
                               {.models = "Qwen3 30B-A3B, 235B-A22B",
                                .operators = "as Qwen3; experts by softmax",
                                .golden = "tiny-qwen3-moe-mixed and four quantized ones",
                                .error = 1.3e-05}};

}  // namespace sluice
