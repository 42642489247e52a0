// Latent attention on a device, except attention itself.
#include "models/device/device_walk.h"

namespace sluice {

using program::kNone;

namespace {

device::TailRope TailRopeOf(const AttentionSpec& spec, const float* cos_sin) {
  return {.dim = spec.latent->rope_dim,
          .cos_sin = cos_sin,
          .interleaved = spec.rope_style == kernels::RopeStyle::kInterleaved};
}

}  // namespace

void DeviceWalk::operator()(const program::LatentAppend& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  const LatentSpec& latent = *spec.latent;
  device::LatentAppendArgs args = {};
  args.x = RowsAt<float>(op.x, spec.first_width());
  args.rows = rows_;
  args.latent_begin = spec.latent_q_width();
  args.latent_dim = latent.kv_rank;
  args.rope = TailRopeOf(spec, RowsAt<float>(op.cos_sin, 0));
  args.k_norm = Vector(op.k_norm);
  args.eps = latent.norm_eps;
  args.slots = step_.inputs->slots(step_.cache->group(op.cache_layer));
  args.cache = ArraysOf(op.cache_layer, op.k_scale, op.k_scale);
  if (op.q != kNone) {
    args.q_dim = latent.q_rank;
    args.q_norm = Vector(op.q_norm);
    args.q = RowsAt<uint16_t>(op.q, latent.q_rank);
  }
  kernels_.latent_append(handle_, args);
}

void DeviceWalk::operator()(const program::ChoosePositions& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  const IndexerSpec& indexer = *spec.latent->indexer;
  CHECK_EQ(step_.cache->group(op.cache_layer), 0);
  const device::KvArrays cache = ArraysOf(op.cache_layer, op.k_scale, op.k_scale);
  auto* const narrow_q =
      RowsAt<uint16_t>(op.narrow_q, int64_t{indexer.num_heads} * indexer.head_dim);
  device::IndexAppendArgs append = {};
  append.q = RowsAt<float>(op.q, 0);
  append.k = RowsAt<float>(op.k, 0);
  append.rows = rows_;
  append.heads = indexer.num_heads;
  append.dim = indexer.head_dim;
  append.k_norm = Vector(op.k_norm);
  append.k_bias = Vector(op.k_norm_bias);
  append.eps = indexer.norm_eps;
  append.rope = TailRopeOf(spec, RowsAt<float>(op.cos_sin, 0));
  append.rope.interleaved = indexer.rope_style == kernels::RopeStyle::kInterleaved;
  if (append.rope.cos_sin == nullptr) append.rope.dim = 0;
  append.slots = step_.inputs->slots(0);
  append.keys = cache.v;
  append.type = cache.type;
  append.k_scale = cache.k_scale;
  append.q_out = narrow_q;
  kernels_.index_append(handle_, append);
  const DeviceIndexRows rows = step_.inputs->index_rows();
  kernels_.select_positions(handle_, {.q = narrow_q,
                                      .weights = RowsAt<float>(op.weights, 0),
                                      .rows = rows_,
                                      .heads = indexer.num_heads,
                                      .dim = indexer.head_dim,
                                      .keys = cache.v,
                                      .type = cache.type,
                                      .index_rows = rows.rows,
                                      .tables = rows.tables,
                                      .block_size = cache.block_size,
                                      .block_rows = cache.block_rows,
                                      .top_k = indexer.top_k,
                                      .max_context = rows.max_context,
                                      .scores = RowsAt<float>(op.scratch, 0),
                                      .chosen = RowsAt<int32_t>(op.chosen, 0)});
}

void DeviceWalk::operator()(const program::AbsorbQueries& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  const LatentSpec& latent = *spec.latent;
  const DeviceExpertWeights& matrices = Experts(op.key_up);
  device::HeadProductsArgs args = {};
  args.x = RowsAt<float>(op.q.buffer, op.q.stride) + op.q.begin;
  args.x_type = ElementType::kF32;
  args.x_stride = op.q.stride;
  args.x_head = latent.qk_dim();
  args.w = static_cast<const uint16_t*>(matrices.first.matrix.codes);
  args.w_head = matrices.codes_stride / static_cast<int64_t>(sizeof(uint16_t));
  args.rows = rows_;
  args.heads = spec.num_heads;
  args.n = latent.kv_rank;
  args.k = latent.nope_dim;
  args.y = RowsAt<uint16_t>(op.out, spec.q_width());
  args.y_stride = spec.q_width();
  args.y_head = spec.head_dim;
  args.rope = TailRopeOf(spec, RowsAt<float>(op.cos_sin, 0));
  if (spec.temperature_tuning) {
    args.positions = step_.inputs->positions();
    args.temperature_floor = static_cast<float>(spec.temperature_tuning->floor_scale);
    args.temperature_scale = static_cast<float>(spec.temperature_tuning->attn_scale);
    args.temperature_first = spec.temperature_tuning->first;
  }
  kernels_.head_products(handle_, args);
}

void DeviceWalk::operator()(const program::ExpandValues& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  const LatentSpec& latent = *spec.latent;
  const DeviceExpertWeights& matrices = Experts(op.value_up);
  device::HeadProductsArgs args = {};
  args.x = At(op.x, 0);
  args.x_type = ElementType::kBF16;
  args.x_stride = int64_t{spec.num_heads} * latent.kv_rank;
  args.x_head = latent.kv_rank;
  args.w = static_cast<const uint16_t*>(matrices.first.matrix.codes);
  args.w_head = matrices.codes_stride / static_cast<int64_t>(sizeof(uint16_t));
  args.rows = rows_;
  args.heads = spec.num_heads;
  args.n = latent.value_dim;
  args.k = latent.kv_rank;
  args.y = RowsAt<uint16_t>(op.out, spec.output_width());
  args.y_stride = spec.output_width();
  args.y_head = latent.value_dim;
  kernels_.head_products(handle_, args);
}

}  // namespace sluice
