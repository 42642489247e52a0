// Phi-3 and Phi-4: like Llama, but with q, k and v in one tensor and gate and up in another; RoPE
// on a part of each head, with a divisor per frequency (longrope); and a window.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace phi3 {
namespace {

// Source: transformers' Phi3Config and Phi3Attention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadWindow(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qkv_projection = "qkv_proj";
    layer.attention.qkv_bias = layer.attention.output_bias = false;
    layer.mlp.gate_up_projection = "gate_up_proj";
    layer.mlp.has_bias = false;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 32064,
                                      .hidden_size = 3072,
                                      .intermediate_size = 8192,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .max_position_embeddings = 4096,
                                      .rms_norm_eps = 1e-5,
                                      .original_max_position_embeddings = 4096,
                                      .partial_rotary_factor = 1,
                                      .bos_token_id = 1,
                                      .eos_token_id = 32000};

}  // namespace
}  // namespace phi3

const ModelFamily kPhi3 = {"Phi3ForCausalLM",
                           "phi3",
                           phi3::kDefaults,
                           phi3::Read,
                           {.models = "Phi-3 and 3.5 mini, medium; Phi-4, Phi-4 mini",
                            .operators = "q, k and v in one tensor, gate and up in one tensor; "
                                         "rope on a part of a head; longrope; a window",
                            .golden = "tiny-phi3-partial, tiny-phi3-long",
                            .error = 2.6e-06}};

}  // namespace sluice
