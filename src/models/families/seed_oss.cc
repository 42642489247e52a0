// Seed-OSS: like Llama, but with biases on q, k and v.
#include "models/family_fields.h"
#include "models/registry.h"

namespace sluice {
namespace seed_oss {
namespace {

// Source: transformers' SeedOssConfig and SeedOssAttention.
Status Read(const JsonFields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFullAttention(fields, config));
  ASSIGN_OR_RETURN(const auto output_bias, fields.Bool("attention_out_bias"));
  for (LayerSpec& layer : config.spec.layers)
    layer.attention.output_bias = output_bias.value_or(false);
  return {};
}

constexpr ConfigDefaults kDefaults = {.vocab_size = 155136,
                                      .hidden_size = 4096,
                                      .intermediate_size = 27648,
                                      .num_hidden_layers = 64,
                                      .num_attention_heads = 80,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .max_position_embeddings = 524288,
                                      .bos_token_id = 0,
                                      .eos_token_id = 2,
                                      .attention_bias = true};

}  // namespace
}  // namespace seed_oss

const ModelFamily kSeedOss = {"SeedOssForCausalLM",
                              "seed_oss",
                              seed_oss::kDefaults,
                              seed_oss::Read,
                              {.models = "Seed-OSS 36B",
                               .operators = "biases of q, k and v",
                               .golden = "tiny-seed-oss",
                               .error = 5.4e-07}};

}  // namespace sluice
