// Mixtral: the attention of Mistral; every layer has experts instead of the MLP, chosen by softmax
// scores, with weights normalized to a sum of 1.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace mixtral {
namespace {

// Source: transformers' MixtralConfig and MixtralTopKRouter.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  RETURN_IF_ERROR(ReadWindow(fields, config));
  RETURN_IF_ERROR(ReadRopeStyle(fields, config));
  MoeSpec moe = {.router_module = "block_sparse_moe.gate",
                 .experts_module = "block_sparse_moe.experts",
                 .gate_projection = "w1",
                 .up_projection = "w3",
                 .down_projection = "w2",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .normalize = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 8, .top_k = 2}, moe));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 32000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 14336,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .rope_theta = 1e6,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

}  // namespace
}  // namespace mixtral

const ModelFamily kMixtral = {
    "MixtralForCausalLM",
    "mixtral",
    mixtral::kDefaults,
    mixtral::Read,
    {.models = "Mixtral 8x7B, 8x22B",
     .operators = "experts with a softmax router and normalized routing weights",
     .golden = "tiny-mixtral",
     .error = 9.6e-07}};

}  // namespace sluice
