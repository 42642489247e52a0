// Nemotron, Minitron and Jais 2: layer norms; an MLP without a gate; squared ReLU. In Nemotron,
// stored norm weights w stand for 1 + w, and RoPE rotates half of each head.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace nemotron {
namespace {

// Source: transformers' Jais2Config and Jais2DecoderLayer.
Status ReadJais2(const JsonFields& fields, ModelConfig& config) {
  config.spec.norm.has_biases = true;
  for (LayerSpec& layer : config.spec.layers) layer.mlp.gate_projection = "";
  return ReadFullAttention(fields, config);
}

// Source: transformers' NemotronConfig and NemotronLayerNorm1P.
Status ReadNemotron(const JsonFields& fields, ModelConfig& config) {
  config.spec.norm_weight_offset = 1;
  return ReadJais2(fields, config);
}

constexpr ConfigDefaults kNemotronDefaults = {.vocab_size = 256000,
                                              .hidden_size = 6144,
                                              .intermediate_size = 24576,
                                              .num_hidden_layers = 32,
                                              .num_attention_heads = 48,
                                              .max_position_embeddings = 4096,
                                              .rms_norm_eps = 1e-5,
                                              .norm_eps_field = "norm_eps",
                                              .has_layer_norms = true,
                                              .partial_rotary_factor = 0.5,
                                              .bos_token_id = 2,
                                              .eos_token_id = 3,
                                              .activation = Activation::kRelu2};
constexpr ConfigDefaults kJais2Defaults = {.vocab_size = 150272,
                                           .hidden_size = 3328,
                                           .intermediate_size = 26624,
                                           .num_hidden_layers = 32,
                                           .num_attention_heads = 26,
                                           .max_position_embeddings = 8192,
                                           .rms_norm_eps = 1e-5,
                                           .norm_eps_field = "layer_norm_eps",
                                           .has_layer_norms = true,
                                           .bos_token_id = 0,
                                           .eos_token_id = 150024,
                                           .attention_bias = true,
                                           .mlp_bias = true,
                                           .activation = Activation::kRelu2};

}  // namespace
}  // namespace nemotron

const ModelFamily kNemotron = {"NemotronForCausalLM",
                               "nemotron",
                               nemotron::kNemotronDefaults,
                               nemotron::ReadNemotron,
                               {.models = "Nemotron 3 and 4 8B, 15B, 340B; Minitron 4B, 8B",
                                .operators = "layer norms that scale by 1 + w; rope on half of a "
                                             "head; an MLP without a gate, squared ReLU",
                                .golden = "tiny-nemotron",
                                .error = 2e-06}};
const ModelFamily kJais2 = {"Jais2ForCausalLM",
                            "jais2",
                            nemotron::kJais2Defaults,
                            nemotron::ReadJais2,
                            {.models = "Jais 2 8B, 70B",
                             .operators = "layer norms; biases; an MLP without a gate, squared "
                                          "ReLU",
                             .golden = "tiny-jais2",
                             .error = 4.8e-07}};

}  // namespace sluice
