#include "cli/limits.h"

namespace sluice::cli {

namespace {

// Number of weights in a layer's attention projections.
int64_t AttentionWeightsOf(const ModelConfig& config) {
  if (!config.spec.layers.empty() && config.spec.layers.front().attention.latent) {
    const AttentionSpec& spec = config.spec.layers.front().attention;
    const LatentSpec& latent = *spec.latent;
    const int64_t heads = spec.num_heads;
    const int64_t plain = config.hidden_size * (spec.first_width() + spec.output_width()) +
                          heads * latent.qk_dim() * latent.q_rank;
    if (latent.compressed) return plain + spec.q_width() * latent.compressed->output_rank;
    return plain + heads * latent.kv_rank * (latent.nope_dim + latent.value_dim);
  }
  const int64_t query = config.num_attention_heads * config.head_dim;
  const int64_t key_value = config.num_key_value_heads * config.head_dim;
  return config.hidden_size * (2 * query + 2 * key_value);
}

}  // namespace

ModelWork WorkOf(const ModelConfig& config) {
  const int64_t attention = AttentionWeightsOf(config);
  int64_t moe_layers = 0, moe = 0;
  for (const LayerSpec& layer : config.spec.layers) {
    if (!layer.moe) continue;
    ++moe_layers;
    moe += config.hidden_size *
           (3 * (layer.moe->top_k * layer.moe->intermediate_size + layer.mlp.intermediate_size) +
            layer.moe->num_experts);
  }
  const int64_t mlp = 3 * config.hidden_size * config.intermediate_size;
  ModelWork work;
  work.matrix_weights =
      config.num_hidden_layers * attention + (config.num_hidden_layers - moe_layers) * mlp + moe;
  work.logit_weights = config.vocab_size * config.hidden_size;
  return work;
}

double PrefillFlops(const ModelConfig& config, const ModelWork& work, int64_t tokens) {
  const double n = static_cast<double>(tokens);
  // For scores and values: on average each token attends to half of the tokens.
  const double attention = 2.0 * n * n *
                           static_cast<double>(config.num_attention_heads * config.head_dim) *
                           static_cast<double>(config.num_hidden_layers);
  return 2.0 * n * static_cast<double>(work.matrix_weights) +
         2.0 * static_cast<double>(work.logit_weights) + attention;
}

}  // namespace sluice::cli
