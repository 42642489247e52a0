#include "models/kv_layout.h"

namespace sluice {

kernels::KvLayout KvLayoutOf(const AttentionSpec& attention, const ModelOptions& options) {
  return {.num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim,
          .block_size = options.block_size,
          .type = options.kv_type,
          .latent_dim = attention.latent ? attention.latent->kv_rank : 0,
          .side_dim = attention.latent && attention.latent->indexer
                          ? attention.latent->indexer->head_dim
                          : 0};
}

kernels::KvLayout KvLayoutOf(const DecoderSpec& spec, const ModelOptions& options) {
  return KvLayoutOf(spec.WidestKeys(), options);
}

kernels::KvLayout KvLayoutOf(const ModelConfig& config, const ModelOptions& options) {
  if (!config.spec.layers.empty()) return KvLayoutOf(config.spec, options);
  AttentionSpec attention;
  attention.num_kv_heads = static_cast<int>(config.num_key_value_heads);
  attention.head_dim = static_cast<int>(config.head_dim);
  return KvLayoutOf(attention, options);
}

}  // namespace sluice
