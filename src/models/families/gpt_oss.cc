// gpt-oss: a learned score per head (sinks); a window in every second layer; YaRN. All layers have
// experts with biases, whose rows of gate and up alternate, and a clamped SwiGLU.
#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gpt_oss {
namespace {

// Source: transformers' GptOssConfig, GptOssAttention and GptOssExperts.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  constexpr int64_t kDefaultWindow = 128;
  // Published BF16 experts have the shape [in, out]. MXFP4 experts have the shape [out, in], which
  // their scheme handles.
  MoeSpec moe = {.router_module = "mlp.router",
                 .experts_module = "mlp.experts",
                 .fused_transposed = true,
                 .intermediate_size = config.intermediate_size,
                 .activation = Activation::kClampedSwiglu,
                 .router_bias = true,
                 .has_bias = true,
                 .normalize = true};
  RETURN_IF_ERROR(ReadExpertCounts(fields, {.num_experts = 128, .top_k = 4}, moe));
  ASSIGN_OR_RETURN(const auto limit, fields.Number("swiglu_limit", 1e-3, 1e6));
  moe.clamp.limit = static_cast<float>(limit.value_or(moe.clamp.limit));
  ASSIGN_OR_RETURN(const auto alpha, fields.Number("swiglu_alpha", 1e-3, 1e3));
  moe.clamp.alpha = static_cast<float>(alpha.value_or(moe.clamp.alpha));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.attention.sinks = true;
    if (types ? (*types)[i] == kSlidingAttention : i % 2 == 0)
      layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
    layer.mlp.intermediate_size = 0;
    layer.moe = moe;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {
    .vocab_size = 201088,
    .hidden_size = 2880,
    .intermediate_size = 2880,
    .num_hidden_layers = 36,
    .num_attention_heads = 64,
    .kv_heads = 8,
    .head_dim = 64,
    .max_position_embeddings = 131072,
    .rms_norm_eps = 1e-5,
    .rope_theta = 150000,
    .rope_parameters = R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096})",
    .attention_bias = true};

}  // namespace
}  // namespace gpt_oss

const ModelFamily kGptOss = {"GptOssForCausalLM",
                             "gpt_oss",
                             gpt_oss::kDefaults,
                             gpt_oss::Read,
                             {.models = "gpt-oss 20B, 120B",
                              .operators = "attention sinks; a window in every second layer; YaRN; "
                                           "experts with biases and clamped SwiGLU",
                              .golden = "tiny-gpt-oss, tiny-gpt-oss-mxfp4",
                              .error = 7.7e-07}};

}  // namespace sluice
