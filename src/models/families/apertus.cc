// Apertus: a norm of each head of q and k, an MLP without a gate, xIELU with numbers of each layer.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace apertus {
namespace {

// Source: transformers' ApertusConfig, ApertusMLP and ApertusDecoderLayer.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention_norms.before = "attention_layernorm";
    layer.mlp_norms.before = "feedforward_layernorm";
    layer.attention.qk_norm = QkNorm::kBeforeRope;
    layer.mlp.gate_projection = "";
    layer.mlp.has_bias = false;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {
    .vocab_size = 131072,
    .hidden_size = 4096,
    .intermediate_size = 14336,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .max_position_embeddings = 65536,
    .rms_norm_eps = 1e-5,
    .rope_theta = 12e6,
    .rope_parameters = R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
        "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0})",
    .bos_token_id = 1,
    .eos_token_id = 2,
    .activation = Activation::kXielu};

}  // namespace
}  // namespace apertus

const ModelFamily kApertus = {"ApertusForCausalLM",
                              "apertus",
                              apertus::kDefaults,
                              apertus::Read,
                              {.models = "Apertus 8B, 70B",
                               .operators = "norms of heads; an MLP without a gate, xIELU",
                               .golden = "tiny-apertus",
                               .error = 5.9e-07}};

}  // namespace sluice
