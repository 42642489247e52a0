// Gemma 2: GELU; embeddings scaled by the square root of their width; norms before and after every
// sublayer, which multiply by 1 + w for a stored weight w; soft caps on scores and logits; a window
// in every second layer.
#include <cmath>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gemma2 {
namespace {

// Reads a soft cap. null means none; an absent field means the library's default.
Result<float> ReadSoftCap(const JsonFields& fields, std::string_view name, double absent) {
  ASSIGN_OR_RETURN(const auto given, fields.Number(name, 1e-3, 1e6));
  return static_cast<float>(given.value_or(fields.Has(name) ? 0 : absent));
}

// Source: transformers' Gemma2Config and Gemma2Attention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kSlidingAttention}));
  ASSIGN_OR_RETURN(const auto window, fields.Integer("sliding_window", 1, kMaxConfigPositions));
  ASSIGN_OR_RETURN(const auto scalar, fields.Number("query_pre_attn_scalar", 1e-3, 1e6));
  constexpr double kDefaultScalar = 256, kDefaultScoreCap = 50, kDefaultLogitCap = 30;
  constexpr int64_t kDefaultWindow = 4096;
  ASSIGN_OR_RETURN(const float score_cap,
                   ReadSoftCap(fields, "attn_logit_softcapping", kDefaultScoreCap));
  DecoderSpec& spec = config.spec;
  ASSIGN_OR_RETURN(spec.logit_soft_cap,
                   ReadSoftCap(fields, "final_logit_softcapping", kDefaultLogitCap));
  spec.norm_weight_offset = 1;
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention_norms = {.before = "input_layernorm", .after = "post_attention_layernorm"};
    layer.mlp_norms = {.before = "pre_feedforward_layernorm",
                       .after = "post_feedforward_layernorm"};
    layer.attention.scale = static_cast<float>(1 / std::sqrt(scalar.value_or(kDefaultScalar)));
    layer.attention.soft_cap = score_cap;
    layer.mlp.has_bias = false;
    if (types ? (*types)[i] == kSlidingAttention : i % 2 == 0)
      layer.attention.span.window = static_cast<int32_t>(window.value_or(kDefaultWindow));
  }
  return {};
}

// Reads VaultGemma, which has no norms after sublayers. Source: transformers'
// VaultGemmaDecoderLayer.
Status ReadVault(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(Read(fields, config));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention_norms.after = layer.mlp_norms.after = "";
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 256000,
                                      .hidden_size = 2304,
                                      .intermediate_size = 9216,
                                      .num_hidden_layers = 26,
                                      .num_attention_heads = 8,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .max_position_embeddings = 8192,
                                      .bos_token_id = 2,
                                      .eos_token_id = 1,
                                      .tie_word_embeddings = true,
                                      .activation = Activation::kGeluTanh};

}  // namespace
}  // namespace gemma2

const ModelFamily kGemma2 = {
    "Gemma2ForCausalLM",
    "gemma2",
    gemma2::kDefaults,
    gemma2::Read,
    {.models = "Gemma 2 2B, 9B, 27B",
     .operators = "GELU; norms that scale by 1 + w before and after sublayers; scaled embeddings; "
                  "soft caps of scores and logits; a window in every second layer",
     .golden = "tiny-gemma2",
     .error = 1.8e-06}};

const ModelFamily kVaultGemma = {"VaultGemmaForCausalLM",
                                 "vaultgemma",
                                 gemma2::kDefaults,
                                 gemma2::ReadVault,
                                 {.models = "VaultGemma 1B",
                                  .operators = "like Gemma 2, without norms after sublayers",
                                  .golden = "tiny-vaultgemma",
                                  .error = 1.3e-06}};

}  // namespace sluice
