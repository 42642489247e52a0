#include <algorithm>

#include "cli/limits.h"

namespace sluice::cli {

ModelWork WorkOf(const ModelConfig& config) {
  const int64_t query = config.num_attention_heads * config.head_dim;
  const int64_t key_value = config.num_key_value_heads * config.head_dim;
  const int64_t attention = config.hidden_size * (2 * query + 2 * key_value);
  const int64_t mlp = 3 * config.hidden_size * config.intermediate_size;
  int64_t moe = 0, moe_layers = 0;
  if (config.experts) {
    const ExpertsConfig& experts = *config.experts;
    const int64_t widths = experts.experts_per_token + (experts.has_shared ? 1 : 0);
    moe = config.hidden_size * (3 * widths * experts.intermediate_size + experts.num_experts);
    moe_layers = std::count(experts.layers.begin(), experts.layers.end(), true);
  }
  ModelWork work;
  work.matrix_weights = config.num_hidden_layers * attention +
                        (config.num_hidden_layers - moe_layers) * mlp + moe_layers * moe;
  work.logit_weights = config.vocab_size * config.hidden_size;
  return work;
}

double PrefillFlops(const ModelConfig& config, const ModelWork& work, int64_t tokens) {
  const double n = static_cast<double>(tokens);
  // Scores and values: each token looks at half of the tokens on average.
  const double attention = 2.0 * n * n *
                           static_cast<double>(config.num_attention_heads * config.head_dim) *
                           static_cast<double>(config.num_hidden_layers);
  return 2.0 * n * static_cast<double>(work.matrix_weights) +
         2.0 * static_cast<double>(work.logit_weights) + attention;
}

}  // namespace sluice::cli
