// Chooses the blocks of positions to which rows attend.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/select_blocks.h"
#include "models/cpu/walk.h"

namespace sluice {

kernels::ChosenPositions CpuWalk::ChosenBlocksOf(
    const program::Attend& op, const BlockIndexerSpec& indexer,
    std::span<const kernels::AttentionSlice> slices) const {
  // Without lists, rows share a pass over the cache. The bits are the same if no row needs a list.
  const int64_t most = int64_t{indexer.top_k} * indexer.block;
  const bool has_lists =
      std::any_of(slices.begin(), slices.end(), [&](const kernels::AttentionSlice& slice) {
        return int64_t{slice.context} + slice.num_tokens > most;
      });
  if (!has_lists) return {};
  const int64_t width = int64_t{indexer.num_heads} * indexer.top_k;
  return {.positions = I32At(op.chosen, width),
          .stride = width,
          .most = indexer.top_k,
          .block = indexer.block};
}

void CpuWalk::operator()(const program::ChooseBlocks& op) {
  const AttentionSpec& spec = Attention(op.attention);
  const BlockIndexerSpec& indexer = *spec.block_indexer;
  const int dim = indexer.head_dim;
  const int64_t width = int64_t{indexer.num_heads} * dim;
  float* const q = F32At(op.q, width);
  float* const k = F32At(op.k, dim);
  const auto prepare = [&](float* x, program::VectorId norm, int heads) {
    kernels::HeadRmsNorm(pool_, x, int64_t{heads} * dim, Vector(norm), program_.norm_eps, rows_,
                         heads, dim);
    kernels::ApplyRope(pool_, x, int64_t{heads} * dim, rows_, heads, dim, spec.rotated(),
                       spec.rope_style, F32At(op.cos_sin, spec.rotated()));
  };
  prepare(q, op.q_norm, indexer.num_heads);
  prepare(k, op.k_norm, 1);
  const kernels::KvCacheView cache = CacheOf(op.cache_layer, op.k_scale, op.v_scale);
  const std::span<const kernels::AttentionSlice> slices = SlicesOf(op.cache_layer);
  kernels::AppendSide(pool_, cache, slices, k, dim);
  kernels::SelectBlocks(
      pool_, cache, slices,
      {.q = q, .num_heads = indexer.num_heads, .block = indexer.block, .local = indexer.local},
      indexer.top_k, I32At(op.chosen, int64_t{indexer.num_heads} * indexer.top_k),
      {At(op.scratch, 0), static_cast<size_t>(op.scratch_bytes)});
}

}  // namespace sluice
