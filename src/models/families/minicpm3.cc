// MiniCPM3: latent attention with half-split RoPE, and scaled embeddings, sublayer results and
// logits.
#include <cmath>

#include "models/family_fields.h"
#include "models/latent_fields.h"
#include "models/registry.h"

namespace sluice {
namespace minicpm3 {
namespace {

// Source: transformers' MiniCPM3Config and modeling_minicpm3.py.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadLatentAttention(fields,
                                      {.q_rank = 768,
                                       .kv_rank = 256,
                                       .nope_dim = 64,
                                       .interleaved = false,
                                       .reads_interleaved = false},
                                      config));
  const auto number = [&](const char* name, double absent, double none) -> Result<double> {
    ASSIGN_OR_RETURN(const auto given, fields.Number(name, 1e-6, 1e6));
    // null means no scaling.
    return given.value_or(fields.Has(name) ? none : absent);
  };
  const double root = std::sqrt(static_cast<double>(config.num_hidden_layers));
  const auto hidden = static_cast<double>(config.hidden_size);
  ASSIGN_OR_RETURN(const double embedding, number("scale_emb", 12, 1));
  ASSIGN_OR_RETURN(const double depth, number("scale_depth", 1.4, root));
  ASSIGN_OR_RETURN(const double base, number("dim_model_base", 256, hidden));
  config.spec.embedding_scale = static_cast<float>(embedding);
  config.spec.residual_scale = static_cast<float>(depth / root);
  config.spec.logit_scale = static_cast<float>(base / hidden);
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 73448,
                                      .hidden_size = 2560,
                                      .intermediate_size = 6400,
                                      .num_hidden_layers = 62,
                                      .num_attention_heads = 40,
                                      .kv_heads = 40,
                                      .max_position_embeddings = 32768,
                                      .rms_norm_eps = 1e-5,
                                      .bos_token_id = 1,
                                      .eos_token_id = 2,
                                      .tie_word_embeddings = true,
                                      .rope_head_dim = 32};

}  // namespace
}  // namespace minicpm3

const ModelFamily kMiniCpm3 = {
    "MiniCPM3ForCausalLM",
    "minicpm3",
    minicpm3::kDefaults,
    minicpm3::Read,
    {.models = "MiniCPM3 4B",
     .operators = "latent attention; scaled embeddings, sublayers and logits",
     .golden = "tiny-minicpm3",
     .error = 4.2e-07}};

}  // namespace sluice
