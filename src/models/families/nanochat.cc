// nanochat: RMS norms without weights, also of the embeddings and of heads of q and k; RoPE with
// the opposite direction of rotation; an MLP without a gate; squared ReLU; soft-capped logits.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace nanochat {
namespace {

// Source: transformers' NanoChatConfig and NanoChatAttention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  constexpr double kDefaultCap = 15;
  ASSIGN_OR_RETURN(const auto cap, fields.Number("final_logit_softcapping", 0, 1e6));
  const bool has_none = fields.Has("final_logit_softcapping") && !cap;
  config.spec.logit_soft_cap = has_none ? 0 : static_cast<float>(cap.value_or(kDefaultCap));
  config.spec.norm.has_weights = false;
  config.spec.norms_embedding = true;
  // Negates the frequencies, which rotates in the opposite direction.
  for (std::vector<float>* table : {&config.spec.rope_tables.front(), &config.spec.long_rope_table})
    for (float& frequency : *table) frequency = -frequency;
  for (LayerSpec& layer : config.spec.layers) {
    layer.attention.qk_norm = QkNorm::kAfterRopeUnweighted;
    layer.mlp.gate_projection = "";
    layer.mlp.up_projection = "fc1";
    layer.mlp.down_projection = "fc2";
    layer.mlp.has_bias = false;
  }
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 50304,
                                      .hidden_size = 768,
                                      .intermediate_size = 8192,
                                      .num_hidden_layers = 12,
                                      .num_attention_heads = 6,
                                      .max_position_embeddings = 2048,
                                      .bos_token_id = 0,
                                      .eos_token_id = 1,
                                      .activation = Activation::kRelu2};

}  // namespace
}  // namespace nanochat

const ModelFamily kNanoChat = {
    "NanoChatForCausalLM",
    "nanochat",
    nanochat::kDefaults,
    nanochat::Read,
    {.models = "nanochat d20, d32",
     .operators = "norms without weights, also after the embedding, and per head after rope; an "
                  "MLP without a gate, squared ReLU; a soft cap of the logits",
     .golden = "tiny-nanochat",
     .error = 5.7e-07}};

}  // namespace sluice
