#include "models/kv_layout.h"

#include <algorithm>

namespace sluice {
namespace {

int SideDim(const AttentionSpec& attention) {
  if (attention.block_indexer) return attention.block_indexer->head_dim;
  if (!attention.latent) return 0;
  if (attention.latent->compressed) return attention.latent->compressed->index_dim;
  return attention.latent->indexer ? attention.latent->indexer->head_dim : 0;
}

int EntriesPerBlock(const AttentionSpec& attention, int block_size) {
  if (!attention.latent || !attention.latent->compressed) return 0;
  const int rate = attention.latent->compressed->least_rate;
  return rate == 0 ? 0 : std::max(1, block_size / rate);
}

}  // namespace

kernels::KvLayout KvLayoutOf(const AttentionSpec& attention, const ModelOptions& options) {
  return {.num_kv_heads = attention.num_kv_heads,
          .head_dim = attention.head_dim,
          .block_size = options.block_size,
          .type = options.kv_type,
          .latent_dim = attention.latent ? attention.value_dim() : 0,
          .side_dim = SideDim(attention),
          .entries = EntriesPerBlock(attention, options.block_size)};
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
