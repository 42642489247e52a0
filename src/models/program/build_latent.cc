#include "models/program/build_latent.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/select_positions.h"
#include "models/kv_cache.h"
#include "models/kv_layout.h"

namespace sluice::program {
namespace {

BufferId FirstRows(Builder& to, const AttentionSpec& spec) {
  return to.F32("latent_rows", Extent::kStep, spec.first_width());
}
// Returns a buffer for attention's queries or results, which is BF16 on a device.
BufferId AttentionRows(Builder& to, const char* name, int64_t width) {
  return to.is_device() ? to.Array(name, Extent::kStep, width * 2)
                        : to.F32(name, Extent::kStep, width);
}
BufferId AbsorbedQueries(Builder& to, const AttentionSpec& spec) {
  return AttentionRows(to, "absorbed", spec.q_width());
}

BufferId ChosenPositions(Builder& to, const AttentionSpec& spec) {
  const auto& indexer = spec.latent->indexer;
  if (!indexer) return kNone;
  return to.Array("chosen_positions", Extent::kStep, indexer->top_k * int64_t{sizeof(int32_t)});
}

// `q_rows`: the normalized vectors from which q is computed.
void EmitIndexer(Builder& to, const LatentLayer& layer, BufferId q_rows) {
  const AttentionWeights& weights = layer.weights;
  const IndexerSpec& indexer = *layer.spec.latent->indexer;
  const ModelOptions& options = to.options();
  to.program().states.push_back(
      {.name = fmt::format("keys of the indexer of layer {}", layer.index),
       .layer = layer.cache_layer,
       .bytes_per_token = indexer.head_dim * BitsPerElement(options.kv_type) / 8});
  if (indexer.is_shared) return;
  // The layers share these rows, so their input types must be equal: F32 in models with experts
  // (DecoderSpec::SplitsInputs).
  for (const LinearWeights* one : {&weights.index_k, &weights.index_weights})
    CHECK(to.InputType(one->inputs) == to.InputType(weights.qkv.inputs));
  CHECK(to.InputType(weights.index_q.inputs) == to.InputType(weights.q_b.inputs));
  const int64_t width = int64_t{indexer.num_heads} * indexer.head_dim;
  const BufferId q = to.F32("index_queries", Extent::kStep, width);
  const BufferId k = to.F32("index_keys", Extent::kStep, indexer.head_dim);
  const BufferId head_weights = to.F32("index_weights", Extent::kStep, indexer.num_heads);
  // On a device, these inputs are never rounded, because small errors change which positions are
  // chosen.
  const RowsIn& rows = to.is_device() ? layer.plain : layer.normed;
  const auto multiply = [&](const LinearWeights& linear, const RowsIn& x, BufferId y, int64_t n,
                            int64_t inputs) {
    Project& product = to.Multiply(linear, x, y, n, inputs);
    product.is_plain = to.is_device();
  };
  multiply(weights.index_q, {.data = q_rows}, q, width, layer.spec.latent->q_rank);
  multiply(weights.index_k, rows, k, indexer.head_dim, layer.hidden);
  multiply(weights.index_weights, rows, head_weights, indexer.num_heads, layer.hidden);
  const int64_t scratch_bytes =
      to.is_device() ? device::SelectScoreBytes(options.max_rows, options.max_context)
                     : kernels::SelectScratchBytes(KvLayoutOf(layer.spec, options),
                                                   options.max_context, layer.num_threads);
  to.Emit(ChoosePositions{.attention = to.Attention(layer.spec),
                          .cache_layer = layer.cache_layer,
                          .q = q,
                          .k = k,
                          .weights = head_weights,
                          .k_norm = to.Vector(weights.index_norm, true),
                          .k_norm_bias = to.Vector(weights.index_norm_bias, true),
                          .cos_sin = layer.cos_sin,
                          .chosen = ChosenPositions(to, layer.spec),
                          .scratch = to.Array("choice_scratch", Extent::kOnce, scratch_bytes),
                          .scratch_bytes = scratch_bytes,
                          .k_scale = weights.kv_scales.k,
                          .narrow_q = to.is_device()
                                          ? to.Array("index_queries_bf16", Extent::kStep, width * 2)
                                          : kNone});
}

// --- compressed attention, only on the CPU ---

BufferId EntryCounts(Builder& to) {
  return to.Array("chosen_counts", Extent::kStep, sizeof(int32_t));
}

// Returns the maximum number of cache rows to which a row attends.
int32_t MostListed(const LatentSpec& latent, const ModelOptions& options) {
  const CompressedSpec& compressed = *latent.compressed;
  int64_t entries = options.max_context / compressed.rate;
  if (latent.indexer) entries = std::min<int64_t>(entries, latent.indexer->top_k);
  return static_cast<int32_t>(compressed.window + entries);
}

BufferId EntryLists(Builder& to, const LatentSpec& latent) {
  return to.Array("chosen_rows", Extent::kStep,
                  MostListed(latent, to.options()) * int64_t{sizeof(int32_t)});
}

void EmitCompressor(Builder& to, const LatentLayer& layer,
                    const AttentionWeights::Compressor& weights, bool is_index) {
  const LatentSpec& latent = *layer.spec.latent;
  // The layers share these rows, so their input types must be equal (DecoderSpec::SplitsInputs).
  CHECK(to.InputType(weights.rows.inputs) == to.InputType(layer.weights.qkv.inputs));
  const int64_t dim = is_index ? latent.indexer->head_dim : layer.spec.head_dim;
  const int64_t width = 2 * latent.compressed->projections() * dim;
  const BufferId rows = to.F32("compressed_rows", Extent::kStep, width);
  to.Multiply(weights.rows, layer.normed, rows, width, layer.hidden);
  to.Emit(CompressKeys{.attention = to.Attention(layer.spec),
                       .cache_layer = layer.cache_layer,
                       .is_index = is_index,
                       .x = rows,
                       .bias = to.Vector(weights.bias, true),
                       .norm = to.Vector(weights.norm, true),
                       .k_scale = layer.weights.kv_scales.k});
}

void EmitEntries(Builder& to, const LatentLayer& layer, BufferId q_rows) {
  const AttentionWeights& weights = layer.weights;
  const LatentSpec& latent = *layer.spec.latent;
  const ModelOptions& options = to.options();
  const kernels::KvLayout layout = KvLayoutOf(layer.spec, options);
  to.program().states.push_back(
      {.name = fmt::format("entries in the making of layer {}", layer.index),
       .layer = layer.cache_layer,
       .bytes_per_sequence = latent.StateNumbers() * 4});
  EmitCompressor(to, layer, weights.entries, /*is_index=*/false);
  ListPositions list{.attention = to.Attention(layer.spec),
                     .cache_layer = layer.cache_layer,
                     .list = EntryLists(to, latent),
                     .counts = EntryCounts(to),
                     .most = MostListed(latent, options),
                     .k_scale = weights.kv_scales.k};
  if (latent.indexer) {
    const IndexerSpec& indexer = *latent.indexer;
    CHECK(to.InputType(weights.index_weights.inputs) == to.InputType(weights.qkv.inputs));
    CHECK(to.InputType(weights.index_q.inputs) == to.InputType(weights.q_b.inputs));
    EmitCompressor(to, layer, weights.index_entries, /*is_index=*/true);
    const int64_t width = int64_t{indexer.num_heads} * indexer.head_dim;
    list.q = to.F32("index_queries", Extent::kStep, width);
    list.weights = to.F32("index_weights", Extent::kStep, indexer.num_heads);
    to.Multiply(weights.index_q, {.data = q_rows}, list.q, width, latent.q_rank);
    to.Multiply(weights.index_weights, layer.normed, list.weights, indexer.num_heads, layer.hidden);
    to.Emit(RotateHeads{.x = list.q,
                        .cos_sin = layer.cos_sin,
                        .heads = indexer.num_heads,
                        .head_dim = indexer.head_dim,
                        .rotated = latent.rope_dim,
                        .style = layer.spec.rope_style});
    list.selected =
        to.Array("selected_entries", Extent::kStep, indexer.top_k * int64_t{sizeof(int32_t)});
    list.scratch_bytes = kernels::SelectScratchBytes(
        layout.Entries(), options.max_context / latent.compressed->rate + 1, layer.num_threads);
    list.scratch = to.Array("choice_scratch", Extent::kOnce, list.scratch_bytes);
  }
  to.Emit(list);
}

// Emits the operators that compute the queries of compressed attention, and those that compute
// entries.
void EmitCompressedQueries(Builder& to, const LatentLayer& layer, BufferId q_rows) {
  const AttentionSpec& spec = layer.spec;
  const LatentSpec& latent = *spec.latent;
  if (latent.makes_entries()) EmitEntries(to, layer, q_rows);
  const BufferId q = AbsorbedQueries(to, spec);
  to.Multiply(layer.weights.q_b, {.data = q_rows}, q, spec.q_width(), latent.q_rank);
  to.Emit(NormRows{.x = q,
                   .weight = to.Vector(layer.weights.q_ones, true),
                   .heads = spec.num_heads,
                   .width = spec.head_dim,
                   .eps = latent.norm_eps});
  to.Emit(RotateHeads{.x = q,
                      .cos_sin = layer.cos_sin,
                      .heads = spec.num_heads,
                      .head_dim = spec.head_dim,
                      .rotated = latent.rope_dim,
                      .style = spec.rope_style});
}

// Emits the output projection of each group of heads.
void EmitOutputGroups(Builder& to, const LatentLayer& layer, BufferId attended, BufferId out,
                      ElementType type) {
  const AttentionSpec& spec = layer.spec;
  const CompressedSpec& compressed = *spec.latent->compressed;
  CHECK(type == ElementType::kF32, "models with compressed attention have experts");
  to.Emit(RotateHeads{.x = attended,
                      .cos_sin = layer.cos_sin,
                      .heads = spec.num_heads,
                      .head_dim = spec.head_dim,
                      .rotated = spec.latent->rope_dim,
                      .style = spec.rope_style,
                      .is_inverse = true});
  to.Emit(ProjectGroups{.matrices = to.Experts(layer.weights.output_groups),
                        .x = attended,
                        .y = out,
                        .groups = compressed.output_groups,
                        .n = compressed.output_rank,
                        .k = spec.q_width() / compressed.output_groups});
}

// Returns the maximum number of positions, or of listed cache rows, to which a row attends.
int64_t MostAttended(const AttentionSpec& spec, const ModelOptions& options) {
  const int64_t listed = spec.latent->makes_entries() ? MostListed(*spec.latent, options) : 0;
  return std::max(options.max_context, listed);
}

// On a device: emits the rounding of the rows from which q is computed.
RowsIn RoundedQueryRows(Builder& to, const AttentionWeights& weights, const LatentSpec& latent,
                        RowsIn rows) {
  if (!to.is_device()) return rows;
  rows.narrow = to.Array("latent_q_f8", Extent::kStep, latent.q_rank);
  to.Emit(Convert{.x = rows.data,
                  .narrow = rows.narrow,
                  .scales = rows.scales,
                  .reader = {.linear = to.Linear(weights.q_b)},
                  .width = latent.q_rank});
  return rows;
}

}  // namespace

void EmitLatentKeys(Builder& to, const LatentLayer& layer) {
  const AttentionSpec& spec = layer.spec;
  const AttentionWeights& weights = layer.weights;
  const LatentSpec& latent = *spec.latent;
  const int64_t width = spec.first_width();
  const BufferId rows = FirstRows(to, spec);
  to.Multiply(weights.qkv, layer.normed, rows, width, layer.hidden);
  const bool has_rank = latent.q_rank > 0;
  const RowsIn q_rows = has_rank ? to.Rows("latent_q", Extent::kStep, latent.q_rank) : RowsIn();
  to.Emit(LatentAppend{.attention = to.Attention(spec),
                       .cache_layer = layer.cache_layer,
                       .x = rows,
                       .cos_sin = layer.cos_sin,
                       .q_norm = to.Vector(weights.q_norm, has_rank),
                       .k_norm = to.Vector(weights.k_norm, true),
                       .q = q_rows.data,
                       .q_type = has_rank ? to.InputType(weights.q_b.inputs) : ElementType::kF32,
                       .k_scale = weights.kv_scales.k});
  const int64_t bits = BitsPerElement(to.options().kv_type);
  if (latent.compressed) {
    to.program().states.push_back(
        {.name = fmt::format("vectors and entries of layer {}", layer.index),
         .layer = layer.cache_layer,
         .bytes_per_token =
             KvCache::BytesPerBlock(KvLayoutOf(spec, to.options()), 1) / to.options().block_size});
    return EmitCompressedQueries(to, layer, q_rows.data);
  }
  to.program().states.push_back(
      {.name = fmt::format("latent vectors and shared keys of layer {}", layer.index),
       .layer = layer.cache_layer,
       .bytes_per_token = spec.kv_width() * bits / 8});
  if (latent.indexer) EmitIndexer(to, layer, q_rows.data);
  Columns q{.buffer = rows, .stride = width};
  if (has_rank) {
    q.stride = int64_t{spec.num_heads} * latent.qk_dim();
    q.buffer = to.F32("latent_heads", Extent::kStep, q.stride);
    to.Multiply(weights.q_b, RoundedQueryRows(to, weights, latent, q_rows), q.buffer, q.stride,
                latent.q_rank);
  }
  to.Emit(AbsorbQueries{.attention = to.Attention(spec),
                        .key_up = to.Experts(weights.key_up),
                        .q = q,
                        .cos_sin = layer.cos_sin,
                        .out = AbsorbedQueries(to, spec)});
}

BufferId EmitLatentAttention(Builder& to, const LatentLayer& layer, ElementType type) {
  const AttentionSpec& spec = layer.spec;
  const ModelOptions& options = to.options();
  const int64_t scratch_bytes =
      to.is_device() ? to.device().attention_partials
                     : kernels::AttentionScratchBytes(
                           KvLayoutOf(spec, options), spec.num_heads, options.max_rows,
                           options.max_slices, MostAttended(spec, options), layer.num_threads);
  const BufferId attended =
      AttentionRows(to, "latent_attended", int64_t{spec.num_heads} * spec.value_dim());
  const LatentSpec& latent = *spec.latent;
  const bool has_lists = latent.makes_entries();
  to.Emit(Attend{.attention = to.Attention(spec),
                 .cache_layer = layer.cache_layer,
                 .q = AbsorbedQueries(to, spec),
                 .out = attended,
                 .allows_bf16 = type == ElementType::kBF16,
                 .chosen = has_lists ? EntryLists(to, latent) : ChosenPositions(to, spec),
                 .counts = has_lists ? EntryCounts(to) : kNone,
                 .most_chosen = has_lists ? MostListed(latent, options) : 0,
                 .scratch = to.Array("attention_scratch", Extent::kOnce, scratch_bytes),
                 .scratch_bytes = scratch_bytes,
                 .sinks = to.Vector(layer.weights.sinks, spec.sinks),
                 .k_scale = layer.weights.kv_scales.k,
                 .v_scale = layer.weights.kv_scales.k});
  return attended;
}

void EmitLatentValues(Builder& to, const LatentLayer& layer, BufferId latent, BufferId out,
                      ElementType type) {
  if (layer.spec.latent->compressed) return EmitOutputGroups(to, layer, latent, out, type);
  if (to.is_device()) {
    to.Emit(ExpandValues{.attention = to.Attention(layer.spec),
                         .value_up = to.Experts(layer.weights.value_up),
                         .x = latent,
                         .out = out,
                         .type = type});
    return;
  }
  const bool is_f32 = type == ElementType::kF32;
  to.Emit(ExpandValues{
      .attention = to.Attention(layer.spec),
      .value_up = to.Experts(layer.weights.value_up),
      .x = latent,
      .y = is_f32 ? out : to.F32("latent_values", Extent::kStep, layer.spec.output_width()),
      .out = is_f32 ? kNone : out,
      .type = type});
}

}  // namespace sluice::program
