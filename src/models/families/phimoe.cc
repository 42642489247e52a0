// Phi-3.5-MoE: layer norms; biases in attention and head; two experts chosen by sparsemixer.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace phimoe {
namespace {

// The cosines and sines of longrope are multiplied by factors from the configuration. Source:
// transformers' PhimoeRotaryEmbedding.
Status ReadAmplitude(const JsonFields& fields, ModelConfig& config) {
  if (!config.rope.scaling || config.rope.scaling->kind != RopeKind::kLongRope) return {};
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    ASSIGN_OR_RETURN(const json::Value* block, fields.Object(name));
    if (block == nullptr) continue;
    const JsonFields rope(*block, fmt::format("{}.", name));
    ASSIGN_OR_RETURN(const auto of_short, rope.Number("short_mscale", 1e-3, 1e3));
    ASSIGN_OR_RETURN(const auto of_long, rope.Number("long_mscale", 1e-3, 1e3));
    if (!of_short) return rope.Missing("short_mscale");
    if (!of_long) return rope.Missing("long_mscale");
    if (*of_short != *of_long) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}.long_mscale {} beside short_mscale {} is not supported: one "
                              "number serves all contexts",
                              name, *of_long, *of_short),
                  fmt::format("{}.long_mscale", name));
    }
    config.rope.scaling->attention_factor = *of_short;
    return {};
  }
  return {};
}

// Source: transformers' PhimoeConfig, PhimoeTopKRouter and PhimoeForCausalLM.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindow(fields, config));
  RETURN_IF_ERROR(ReadAmplitude(fields, config));
  MoeSpec moe = {.router_module = "block_sparse_moe.gate",
                 .experts_module = "block_sparse_moe.experts",
                 .gate_projection = "w1",
                 .up_projection = "w3",
                 .down_projection = "w2",
                 .intermediate_size = config.intermediate_size,
                 .activation = config.activation,
                 .score = kernels::RouterScore::kSparseMixer};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 16, .top_k = 2}, moe));
  if (moe.top_k != 2) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("num_experts_per_tok {} is not supported: the sparsemixer chooses 2",
                            moe.top_k),
                "num_experts_per_tok");
  }
  ASSIGN_OR_RETURN(const auto jitter, fields.Number("router_jitter_noise", 0, 1e3));
  moe.jitter = static_cast<float>(jitter.value_or(0.01));
  ASSIGN_OR_RETURN(const auto head_bias, fields.Bool("lm_head_bias"));
  config.spec.head_bias = head_bias.value_or(false);
  if (config.spec.head_bias && config.spec.tied_head) {
    return Fail(ErrorCode::kUnsupported,
                "lm_head_bias true is not supported with tie_word_embeddings true", "lm_head_bias");
  }
  config.spec.norm.has_biases = true;
  for (LayerSpec& layer : config.spec.layers) {
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 32064,
                                      .hidden_size = 4096,
                                      .intermediate_size = 6400,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1e-5,
                                      .has_layer_norms = true,
                                      .rope_theta = 1e6,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

}  // namespace
}  // namespace phimoe

const ModelFamily kPhimoe = {"PhimoeForCausalLM",
                             "phimoe",
                             phimoe::kDefaults,
                             phimoe::Read,
                             {.models = "Phi-3.5-MoE",
                              .operators = "layer norms; biases of attention and output head; "
                                           "experts with a SparseMixer router; longrope; a window",
                              .golden = "tiny-phimoe",
                              .error = 6e-07}};

}  // namespace sluice
