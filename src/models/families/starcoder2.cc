// StarCoder 2: layer norms; biases in all layers; an MLP without a gate; a window.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace starcoder2 {
namespace {

// Source: transformers' Starcoder2Config and Starcoder2MLP.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindow(fields, config));
  ASSIGN_OR_RETURN(const auto bias, fields.Bool("use_bias"));
  config.spec.norm.has_biases = true;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_bias = layer.attention.output_bias = bias.value_or(true);
    layer.mlp.gate_projection = "";
    layer.mlp.up_projection = "c_fc";
    layer.mlp.down_projection = "c_proj";
    layer.mlp.has_bias = bias.value_or(true);
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 49152,
                                      .hidden_size = 3072,
                                      .intermediate_size = 12288,
                                      .num_hidden_layers = 30,
                                      .num_attention_heads = 24,
                                      .kv_heads = 2,
                                      .max_position_embeddings = 4096,
                                      .rms_norm_eps = 1e-5,
                                      .norm_eps_field = "norm_epsilon",
                                      .has_layer_norms = true,
                                      .bos_token_id = 50256,
                                      .eos_token_id = 50256,
                                      .tie_word_embeddings = true,
                                      .activation = Activation::kGeluTanh};

}  // namespace
}  // namespace starcoder2

const ModelFamily kStarcoder2 = {"Starcoder2ForCausalLM",
                                 "starcoder2",
                                 starcoder2::kDefaults,
                                 starcoder2::Read,
                                 {.models = "StarCoder 2 3B, 7B, 15B",
                                  .operators = "layer norms; biases; an MLP without a gate, GELU; "
                                               "a window",
                                  .golden = "tiny-starcoder2",
                                  .error = 4.3e-07}};

}  // namespace sluice
