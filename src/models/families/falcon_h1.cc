// Falcon-H1: attention and Mamba-2 in parallel in every layer. Factors scale the embeddings, the
// inputs and outputs of attention and Mamba-2, the keys, parts of Mamba-2's inputs, the MLP, and
// the logits.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "models/family_fields.h"
#include "models/registry.h"
#include "models/state_space_fields.h"

namespace sluice {
namespace falcon_h1 {
namespace {

Result<float> ReadFactor(const JsonFields& fields, const char* name) {
  ASSIGN_OR_RETURN(const auto given, fields.Number(name, 1e-9, 1e9));
  return static_cast<float>(given.value_or(1));
}

// Reads a list with as many numbers as `factors`; an absent field leaves `factors` unchanged.
Status ReadFactors(const JsonFields& fields, const char* name, std::span<float> factors) {
  const json::Value* const given = fields.Given(name);
  if (given == nullptr) return {};
  const auto is_factor = [](const json::Value& value) {
    return value.is_number() && std::isfinite(value.as_double());
  };
  if (!given->is_array() || given->as_array().size() != factors.size() ||
      !std::ranges::all_of(given->as_array(), is_factor))
    return fields.Bad(name, fmt::format("a list of {} numbers", factors.size()), *given);
  for (size_t i = 0; i < factors.size(); ++i)
    factors[i] = static_cast<float>(given->as_array()[i].as_double());
  return {};
}

// Reads the factors of attention's input, output and keys. The scores and the output are multiplied
// by their products, which has the same effect. Source: transformers' FalconH1DecoderLayer and
// FalconH1Attention.
Status ReadAttentionFactors(const JsonFields& fields, const ModelConfig& config,
                            AttentionSpec& attention) {
  ASSIGN_OR_RETURN(const float in, ReadFactor(fields, "attention_in_multiplier"));
  ASSIGN_OR_RETURN(const float out, ReadFactor(fields, "attention_out_multiplier"));
  ASSIGN_OR_RETURN(const float key, ReadFactor(fields, "key_multiplier"));
  if (config.attention_bias && in * out * key != 1) {
    return Fail(ErrorCode::kUnsupported,
                "attention_bias true is not supported together with factors of attention",
                "attention_bias");
  }
  attention.scale = attention.softmax_scale() * in * in * key;
  attention.output_factor = in * out;
  return {};
}

// Source: transformers' FalconH1Mixer and compute_mup_vector.
Result<MixerSpec> ReadMixer(const JsonFields& fields, const ModelConfig& config) {
  int64_t width = -1;
  if (const json::Value* const given = fields.Given("mamba_d_ssm");
      given != nullptr || !fields.Has("mamba_d_ssm")) {
    ASSIGN_OR_RETURN(const auto own, fields.Integer("mamba_d_ssm", 1, kMaxConfigWidth));
    width = own.value_or(1024);
  }
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadStateSpace(fields, config, width));
  ASSIGN_OR_RETURN(const auto has_norm, fields.Bool("mamba_rms_norm"));
  ASSIGN_OR_RETURN(const auto before_gate, fields.Bool("mamba_norm_before_gate"));
  ASSIGN_OR_RETURN(const auto output_bias, fields.Bool("projectors_bias"));
  if (!has_norm.value_or(false)) mixer.norm = MixerSpec::Norm::kNone;
  mixer.norms_before_gate = before_gate.value_or(true);
  mixer.output_bias = output_bias.value_or(false);
  RETURN_IF_ERROR(ReadFactors(fields, "ssm_multipliers", mixer.input_factors));
  ASSIGN_OR_RETURN(const float in, ReadFactor(fields, "ssm_in_multiplier"));
  ASSIGN_OR_RETURN(mixer.output_factor, ReadFactor(fields, "ssm_out_multiplier"));
  if (mixer.has_bias && in != 1) {
    return Fail(ErrorCode::kUnsupported,
                "mamba_proj_bias true is not supported together with ssm_in_multiplier",
                "mamba_proj_bias");
  }
  for (float& factor : mixer.input_factors) factor *= in;
  return mixer;
}

Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const MixerSpec mixer, ReadMixer(fields, config));
  DecoderSpec& spec = config.spec;
  ASSIGN_OR_RETURN(spec.embedding_scale, ReadFactor(fields, "embedding_multiplier"));
  ASSIGN_OR_RETURN(spec.logit_scale, ReadFactor(fields, "lm_head_multiplier"));
  std::array<float, 2> of_mlp = {1, 1};
  RETURN_IF_ERROR(ReadFactors(fields, "mlp_multipliers", of_mlp));
  for (LayerSpec& layer : spec.layers) {
    layer.mixer = mixer;
    RETURN_IF_ERROR(ReadAttentionFactors(fields, config, layer.attention));
    layer.mlp_norms.before = "pre_ff_layernorm";
    layer.mlp.module = "feed_forward";
    layer.mlp.gate_factor = of_mlp[0];
    layer.mlp.output_factor = of_mlp[1];
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 128000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 14336,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 8192,
                                      .rms_norm_eps = 1e-5,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

}  // namespace
}  // namespace falcon_h1

const ModelFamily kFalconH1 = {
    "FalconH1ForCausalLM",
    "falcon_h1",
    falcon_h1::kDefaults,
    falcon_h1::Read,
    {.models = "Falcon-H1 0.5B, 1.5B, 3B, 7B, 34B",
     .operators =
         "Mamba-2 in parallel with attention in every layer; multipliers for most activations",
     .golden = "tiny-falcon-h1",
     .error = 8.6e-07}};

}  // namespace sluice
