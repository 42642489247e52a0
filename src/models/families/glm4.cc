// GLM-4: interleaved RoPE on half of each head; biases of q, k and v; gate and up in one tensor; in
// GLM-4-0414 also norms after sublayers.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace glm4 {
namespace {

// Source: transformers' GlmConfig and GlmAttention.
Status ReadGlm(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.rope_style = kernels::RopeStyle::kInterleaved;
    layer.attention.output_bias = false;
    layer.mlp.gate_up_projection = "gate_up_proj";
    layer.mlp.has_bias = false;
  }
  return {};
}

// Source: transformers' Glm4DecoderLayer.
Status ReadGlm4(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadGlm(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.after = "post_self_attn_layernorm";
    layer.mlp_norms.after = "post_mlp_layernorm";
  }
  return {};
}

// Source: transformers' GlmOcrTextAttention.
Status ReadGlmOcr(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadGlm4(fields, config));
  for (LayerSpec& layer : config.spec.layers) layer.attention.qkv_bias = false;
  ASSIGN_OR_RETURN(const auto draft,
                   fields.Integer("num_nextn_predict_layers", 0, kMaxConfigLayers));
  config.spec.num_draft_layers = draft.value_or(1);
  return ReadRopeAxes(fields, {8, 12, 12}, /*interleaves=*/false, config);
}

// Source: transformers' Glm4vTextAttention.
Status ReadGlm4v(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadGlm4(fields, config));
  for (LayerSpec& layer : config.spec.layers) layer.attention.qkv_bias = true;
  return ReadRopeAxes(fields, {8, 12, 12}, /*interleaves=*/false, config);
}

constexpr ConfigDefaults kGlmOcrDefaults = {.vocab_size = 59392,
                                            .hidden_size = 1024,
                                            .intermediate_size = 4096,
                                            .num_hidden_layers = 16,
                                            .num_attention_heads = 16,
                                            .kv_heads = 8,
                                            .max_position_embeddings = 131072,
                                            .rms_norm_eps = 1e-5,
                                            .partial_rotary_factor = 1,
                                            .is_nested = true};
constexpr ConfigDefaults kGlm4vDefaults = {.vocab_size = 151552,
                                           .hidden_size = 4096,
                                           .intermediate_size = 13696,
                                           .num_hidden_layers = 40,
                                           .num_attention_heads = 32,
                                           .kv_heads = 2,
                                           .max_position_embeddings = 32768,
                                           .rms_norm_eps = 1e-5,
                                           .partial_rotary_factor = 1,
                                           .is_nested = true};
constexpr ConfigDefaults kDefaults = {.vocab_size = 151552,
                                      .hidden_size = 4096,
                                      .intermediate_size = 13696,
                                      .num_hidden_layers = 40,
                                      .num_attention_heads = 32,
                                      .kv_heads = 2,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1.5625e-7,
                                      .partial_rotary_factor = 0.5,
                                      .attention_bias = true};

}  // namespace
}  // namespace glm4

const ModelFamily kGlm = {"GlmForCausalLM",
                          "glm",
                          glm4::kDefaults,
                          glm4::ReadGlm,
                          {.models = "GLM-4 9B, GLM-Edge",
                           .operators = "interleaved rope on half of a head; biases of q, k and "
                                        "v; gate and up in one tensor",
                           .golden = "tiny-glm",
                           .error = 5.4e-07}};
const ModelFamily kGlm4 = {"Glm4ForCausalLM",
                           "glm4",
                           glm4::kDefaults,
                           glm4::ReadGlm4,
                           {.models = "GLM-4-0414 9B, 32B; GLM-Z1",
                            .operators = "like GLM-4; norms before and after sublayers",
                            .golden = "tiny-glm4",
                            .error = 7.7e-07}};

const ModelFamily kGlm4v = {
    "Glm4vForConditionalGeneration",
    "glm4v",
    glm4::kGlm4vDefaults,
    glm4::ReadGlm4v,
    {.models = "GLM-4.1V 9B, GLM-4.6V Flash",
     .operators = "like GLM-4-0414; M-RoPE (time, row, column); images: RMS norms, positions with "
                  "bicubic interpolation, 2-D rope, a merging convolution",
     .golden = "tiny-glm4v",
     .error = 1.7e-06}};
const ModelFamily kGlmOcr = {
    "GlmOcrForConditionalGeneration",
    "glm_ocr",
    glm4::kGlmOcrDefaults,
    glm4::ReadGlmOcr,
    {.models = "GLM-OCR",
     .operators = "like GLM-4-0414 without biases; M-RoPE (time, row, column); images: RMS norms, "
                  "per-head norms, 2-D rope, a merging convolution",
     .golden = "tiny-glm-ocr",
     .error = 3.3e-06}};

}  // namespace sluice
