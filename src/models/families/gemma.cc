// Gemma 1: GELU, scaled embeddings, norms whose stored weights w stand for 1 + w.
#include <cmath>

#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace gemma {
namespace {

// Source: transformers' GemmaConfig and GemmaModel.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  RETURN_IF_ERROR(RefuseField(fields, "use_bidirectional_attention", "tokens that see later ones"));
  config.spec.norm_weight_offset = 1;
  config.spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  for (LayerSpec& layer : config.spec.layers) layer.mlp.has_bias = false;
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 256000,
                                      .hidden_size = 3072,
                                      .intermediate_size = 24576,
                                      .num_hidden_layers = 28,
                                      .num_attention_heads = 16,
                                      .kv_heads = 16,
                                      .head_dim = 256,
                                      .max_position_embeddings = 8192,
                                      .bos_token_id = 2,
                                      .eos_token_id = 1,
                                      .tie_word_embeddings = true,
                                      .activation = Activation::kGeluTanh};

}  // namespace
}  // namespace gemma

const ModelFamily kGemma = {"GemmaForCausalLM",
                            "gemma",
                            gemma::kDefaults,
                            gemma::Read,
                            {.models = "Gemma 2B, 7B; CodeGemma",
                             .operators = "GELU; norms that scale by 1 + w; scaled embeddings",
                             .golden = "tiny-gemma",
                             .error = 2e-06}};

}  // namespace sluice
