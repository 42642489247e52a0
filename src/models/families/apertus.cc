// Apertus: a norm of each head of q and k; an MLP without a gate; xIELU, whose parameters each
// layer learns.
#include <fmt/format.h>

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

// Source: transformers' Apertus1p5TextForCausalLM.
Status Read15(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto words, fields.Integer("output_vocab_size", 1, config.vocab_size));
  if (words.value_or(config.vocab_size) != config.vocab_size) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("output_vocab_size {} is not supported; supported is vocab_size {}",
                            *words, config.vocab_size),
                "output_vocab_size");
  }
  return Read(fields, config);
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

constexpr ConfigDefaults Defaults15() {
  ConfigDefaults defaults = kDefaults;
  defaults.vocab_size = 266752;
  return defaults;
}

}  // namespace
}  // namespace apertus

const ModelFamily kApertus = {"ApertusForCausalLM",
                              "apertus",
                              apertus::kDefaults,
                              apertus::Read,
                              {.models = "Apertus 8B, 70B",
                               .operators = "per-head norms; an MLP without a gate, xIELU",
                               .golden = "tiny-apertus",
                               .error = 5.9e-07}};

const ModelFamily kApertus15 = {"Apertus1p5TextForCausalLM",
                                "apertus1p5_text",
                                apertus::Defaults15(),
                                apertus::Read15,
                                {.models = "the text models of Apertus 1.5",
                                 .operators = "like Apertus",
                                 .golden = "tiny-apertus-1p5",
                                 .error = 5.6e-07}};

}  // namespace sluice
