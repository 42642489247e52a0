// Bamba: Mamba-2 in most layers, attention with RoPE on half of each head in the others.
#include "models/family_fields.h"
#include "models/registry.h"
#include "models/state_space_fields.h"

namespace sluice {
namespace bamba {
namespace {

// Source: transformers' BambaConfig and BambaDecoderLayer.
Status Read(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const auto attends, ReadLayerSet(fields, config, "attn_layer_indices"));
  ASSIGN_OR_RETURN(const MixerSpec mixer, ReadStateSpace(fields, config));
  std::vector<bool> mixes;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    mixes.push_back(!attends || !(*attends)[i]);
    LayerSpec& layer = config.spec.layers[i];
    layer.mlp_norms.before = "pre_ff_layernorm";
    layer.mlp.module = "feed_forward";
  }
  return ReplaceAttention(mixes, mixer, config);
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 128000,
                                      .hidden_size = 4096,
                                      .intermediate_size = 14336,
                                      .num_hidden_layers = 32,
                                      .num_attention_heads = 32,
                                      .kv_heads = 8,
                                      .max_position_embeddings = 262144,
                                      .rms_norm_eps = 1e-5,
                                      .partial_rotary_factor = 0.5,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2};

}  // namespace
}  // namespace bamba

const ModelFamily kBamba = {
    "BambaForCausalLM",
    "bamba",
    bamba::kDefaults,
    bamba::Read,
    {.models = "Bamba 9B",
     .operators = "Mamba-2 instead of attention in most layers; rope on half of each head",
     .golden = "tiny-bamba",
     .error = 7.2e-07}};

}  // namespace sluice
