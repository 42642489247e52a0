// OLMo Hybrid: Gated DeltaNet in most layers, with norms before sublayers. The other layers are as
// in OLMo 2, with norms after sublayers. RoPE is used if config.json has a RoPE base.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace olmo_hybrid {
namespace {

Result<std::vector<bool>> ReadMixingLayers(const JsonFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto types,
                   ReadLayerTypes(fields, config, {kFullAttention, kLinearAttention}));
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i)
    mixes.push_back(types ? (*types)[i] == kLinearAttention : i % 4 != 3);
  if (!types && mixes.size() < 4) mixes.back() = false;
  return mixes;
}

// A null base means that there is no RoPE.
Result<bool> HasRope(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const json::Value* block, fields.Object("rope_parameters"));
  if (block == nullptr) return !fields.Has("rope_theta") || fields.Given("rope_theta") != nullptr;
  const json::Value* const theta = block->Find("rope_theta");
  return theta == nullptr || !theta->is_null();
}

// Source: transformers' OlmoHybridConfig, OlmoHybridGatedDeltaNet and its decoder layers.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<bool> mixes, ReadMixingLayers(fields, config));
  const int64_t heads = config.num_attention_heads;
  ASSIGN_OR_RETURN(const auto key_heads, fields.Integer("linear_num_key_heads", 1, 4096));
  ASSIGN_OR_RETURN(const auto key_dim, fields.Integer("linear_key_head_dim", 1, 4096));
  const int64_t default_dim = 3 * config.hidden_size / (4 * key_heads.value_or(heads));
  ASSIGN_OR_RETURN(MixerSpec mixer, ReadDeltaRule(fields,
                                                  {.key_heads = heads,
                                                   .heads = heads,
                                                   .key_dim = default_dim,
                                                   .head_dim = 2 * key_dim.value_or(default_dim)},
                                                  config));
  mixer.projections = MixerSpec::Projections::kEach;
  mixer.norm_eps = 1e-5f;  // independent of rms_norm_eps
  ASSIGN_OR_RETURN(const auto is_wide, fields.Bool("linear_allow_neg_eigval"));
  if (is_wide.value_or(true)) mixer.rate_scale = 2;
  ASSIGN_OR_RETURN(const bool has_rope, HasRope(fields));
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp.has_bias = false;
    layer.attention.qk_norm = QkNorm::kWholeWidth;
    layer.attention.rope = has_rope;
    if (mixes[i]) {
      layer.attention_norms = {.before = "input_layernorm", .after = ""};
      layer.mlp_norms = {.before = "post_attention_layernorm", .after = ""};
    } else {
      layer.attention_norms = {.before = "", .after = "post_attention_layernorm"};
      layer.mlp_norms = {.before = "", .after = "post_feedforward_layernorm"};
    }
  }
  return ReplaceAttention(mixes, mixer, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 100352,
                                      .hidden_size = 3840,
                                      .intermediate_size = 11008,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 30,
                                      .max_position_embeddings = 65536,
                                      .eos_token_id = 100257};

}  // namespace
}  // namespace olmo_hybrid

const ModelFamily kOlmoHybrid = {
    "OlmoHybridForCausalLM",
    "olmo_hybrid",
    olmo_hybrid::kDefaults,
    olmo_hybrid::Read,
    {.models = "OLMo Hybrid 7B",
     .operators =
         "Gated DeltaNet instead of attention in most layers; the other layers like OLMo 2",
     .golden = "tiny-olmo-hybrid",
     .error = 2.1e-06}};

}  // namespace sluice
