#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/select_blocks.h"
#include "models/kv_layout.h"
#include "models/program/decoder_builder.h"

namespace sluice::program {

void DecoderBuilder::BeginMixing(size_t index, int64_t cache_layer) {
  const LayerSpec& layer = share_.layers[index];
  if (!layer.mixes()) return;
  const LayerWeights& weights = weights_.layers[index];
  CollapseStreams(weights.attention_streams);
  const LinearWeights& reader = layer.attention.exists() ? weights.attention.qkv : weights.mixer.in;
  if (ReadsJoined(index)) {
    JoinDrafts(reader, residual_, /*norms_hidden=*/!options_.drafter->norms_residual);
  } else {
    Norm* const norm =
        EmitRowNorm(weights.attention_norms.before, weights.attention_norms.before_bias,
                    !layer.attention_norms.before.empty(), has_delta_, &reader, Normed());
    if (norm != nullptr) norm->eps_factor = layer.attention_norms.eps_factor;
  }
  if (layer.attention.exists()) BeginAttention(index, cache_layer);
  if (layer.mixer) BeginMixer(index, cache_layer, reader);
}

void DecoderBuilder::EndMixing(size_t index, int64_t cache_layer, bool keeps_wanted) {
  const LayerSpec& layer = share_.layers[index];
  KeepRows keep;
  size_t num_kept = 0;
  const auto keep_rows = [&](BufferId buffer, int64_t bytes) {
    keep.kept[num_kept++] = {{.buffer = buffer, .stride = bytes}, bytes};
  };
  keep_rows(residual_, hidden_ * 4);
  Left attended;
  if (layer.attention.exists()) {
    attended = Attend(index, cache_layer);
    keep_rows(attended.rows, attended.row_bytes);
    if (keeps_wanted && to_.is_device()) keep.kept[1].to = LastAttended(attended.row_bytes);
  }
  if (layer.mixer && to_.is_device()) {
    const int64_t bytes = layer.mixer->values_width() * 2;
    keep_rows(OwnMixed(index), bytes);
    if (keeps_wanted) keep.kept[num_kept - 1].to = to_.Array("last_mixed", Extent::kWanted, bytes);
  } else if (layer.mixer) {
    const MixerSpec& mixer = *layer.mixer;
    const bool is_short = mixer.kind == MixerSpec::Kind::kShortConvolution;
    keep_rows(is_short ? OwnMixed(index) : Mixed(mixer),
              is_short ? mixer.values_width() * BitsPerElement(MixedType(index)) / 8
                       : mixer.InputRows() * 4);
    if (mixer.low_rank > 0) keep_rows(MixerGate(mixer), mixer.values_width() * 4);
  }
  if (keeps_wanted) {
    if (spec_.layer_embeddings.width > 0) {
      Columns columns = EmbeddingsOfLayers();
      columns.rows_before *= 4;
      columns.stride *= 4;
      keep.kept[2] = {columns, columns.stride};
    }
    if (to_.is_device()) MoveRows(keep);
    to_.Emit(keep);
  }
  if (!layer.mixes()) return;
  if (layer.attention.exists()) EndAttention(index, cache_layer, attended);
  if (layer.mixer) EndMixer(index);
  GatherDelta();
  has_delta_ = true;
  LeaveSublayer(weights_.layers[index].attention_norms.after, !layer.attention_norms.after.empty());
}

int64_t DecoderBuilder::ProjectedWidth(const AttentionSpec& spec) {
  int64_t n = spec.gate_width() + spec.q_width();
  if (spec.has_own_kv()) n += spec.kv_width();
  if (spec.has_own_kv() && !spec.values_are_keys) n += spec.given_v_width();
  return n;
}

void DecoderBuilder::BeginAttention(size_t index, int64_t cache_layer) {
  const AttentionSpec& spec = share_.layers[index].attention;
  const AttentionWeights& own = weights_.layers[index].attention;
  if (spec.has_gate_module() && spec.latent) MakeAttentionGates(index);
  if (spec.latent) {
    LatentLayer latent = LatentOf(index, cache_layer);
    if (to_.is_device() && spec.latent->indexer && !spec.latent->indexer->is_shared) {
      latent.plain = to_.Rows("normed_too", Extent::kStep, hidden_);
      EmitNorm(weights_.layers[index].attention_norms.before,
               !share_.layers[index].attention_norms.before.empty(), /*adds=*/false,
               /*reader=*/nullptr, latent.plain);
    }
    return EmitLatentKeys(to_, latent);
  }
  const BufferId qkv = to_.Wide("qkv", Extent::kStep, spec.row_width());
  const int64_t n = ProjectedWidth(spec);
  const bool is_joined = ReadsJoined(index);
  Project& product = to_.Multiply(own.qkv, is_joined ? Joined2() : Normed(), qkv, n,
                                  is_joined ? 2 * hidden_ : hidden_);
  product.y_type = to_.wide();
  product.y_stride = to_.is_device() ? n : spec.row_width();
  if (spec.has_gate_module()) MakeAttentionGates(index);
  PrepareHeads(spec, own, qkv, n);
  const bool has_rms = spec.qk_norm != QkNorm::kNone && spec.qk_norm != QkNorm::kLayerBeforeRope;
  RopeAppend append{.attention = to_.Attention(spec),
                    .cache_layer = cache_layer,
                    .model_layer = first_layer_ + static_cast<int64_t>(index),
                    .x = qkv,
                    .cos_sin = spec.rope ? RopeTableOf(spec.rope_table) : kNone,
                    .q_norm = to_.Vector(own.q_norm, has_rms),
                    .k_norm = to_.Vector(own.k_norm, has_rms && spec.has_own_kv()),
                    .v_norm = to_.Vector(own.v_norm, spec.norms_values),
                    .k_scale = own.kv_scales.k,
                    .v_scale = own.kv_scales.v,
                    .x_type = to_.wide()};
  if (to_.is_device()) {
    append.q = to_.Array("q", Extent::kStep, spec.q_width() * 2);
    if (spec.qk_norm == QkNorm::kWholeWidth) AddSquares(index, append);
  } else if (is_shared_ && spec.qk_norm == QkNorm::kWholeWidth) {
    append.own_qk = to_.F32("own_qk", Extent::kStep, spec.q_width());
    append.whole_qk = to_.F32("whole_qk", Extent::kStep, Whole(index).attention.q_width());
  }
  to_.Emit(append);
  if (spec.has_own_kv()) {
    const int64_t bits = BitsPerElement(options_.kv_type);
    to_.program().states.push_back({.name = fmt::format("keys and values of layer {}", index),
                                    .layer = cache_layer,
                                    .bytes_per_token = 2 * spec.kv_width() * bits / 8});
    // All layers have room for an indexer's keys if one has an indexer.
    if (const int side = KvLayoutOf(spec_, options_).side_dim; side > 0) {
      to_.program().states.push_back({.name = fmt::format("keys of the indexer of layer {}", index),
                                      .layer = cache_layer,
                                      .bytes_per_token = side * bits / 8});
    }
  }
  if (spec.block_indexer) EmitBlockIndexer(index, cache_layer);
  const StageRows::Keys* const keys = stage_rows_.Find(append.model_layer);
  if (keys == nullptr) return;
  to_.Emit(CopyColumns{.from = {.buffer = qkv,
                                .begin = spec.gate_width() + spec.q_width(),
                                .stride = spec.row_width()},
                       .to = MessageOf(*keys),
                       .width = 2 * keys->width});
}

BufferId DecoderBuilder::ChosenBlocks(const AttentionSpec& spec) {
  if (!spec.block_indexer) return kNone;
  const int64_t count = int64_t{spec.block_indexer->num_heads} * spec.block_indexer->top_k;
  return to_.Array("chosen_blocks", Extent::kStep, count * int64_t{sizeof(int32_t)});
}

void DecoderBuilder::EmitBlockIndexer(size_t index, int64_t cache_layer) {
  const AttentionSpec& spec = share_.layers[index].attention;
  const AttentionWeights& weights = weights_.layers[index].attention;
  const BlockIndexerSpec& indexer = *spec.block_indexer;
  // The layers share these rows, so their input types must be equal: F32 in models with experts
  // (DecoderSpec::SplitsInputs).
  for (const LinearWeights* one : {&weights.index_q, &weights.index_k})
    CHECK(to_.InputType(one->inputs) == to_.InputType(weights.qkv.inputs));
  const int64_t width = int64_t{indexer.num_heads} * indexer.head_dim;
  const BufferId q = to_.F32("index_queries", Extent::kStep, width);
  const BufferId k = to_.F32("index_keys", Extent::kStep, indexer.head_dim);
  to_.Multiply(weights.index_q, Normed(), q, width, hidden_);
  to_.Multiply(weights.index_k, Normed(), k, indexer.head_dim, hidden_);
  const int64_t scratch_bytes =
      kernels::SelectBlocksScratchBytes(KvLayoutOf(spec, options_), indexer.num_heads,
                                        indexer.block, options_.max_context, num_threads_);
  to_.Emit(ChooseBlocks{.attention = to_.Attention(spec),
                        .cache_layer = cache_layer,
                        .q = q,
                        .k = k,
                        .q_norm = to_.Vector(weights.index_q_norm, true),
                        .k_norm = to_.Vector(weights.index_norm, true),
                        .cos_sin = RopeTableOf(spec.rope_table),
                        .chosen = ChosenBlocks(spec),
                        .scratch = to_.Array("choice_scratch", Extent::kOnce, scratch_bytes),
                        .scratch_bytes = scratch_bytes,
                        .k_scale = weights.kv_scales.k,
                        .v_scale = weights.kv_scales.v});
}

void DecoderBuilder::PrepareHeads(const AttentionSpec& spec, const AttentionWeights& weights,
                                  BufferId qkv, int64_t given) {
  const int64_t stride = spec.row_width(), q = spec.gate_width(), k = q + spec.q_width();
  const auto from = [&](int64_t begin) {
    return Columns{.buffer = qkv, .begin = begin, .stride = stride};
  };
  if (spec.qkv_limit != 0)
    to_.Emit(LimitRows{.x = from(q), .width = given - q, .limit = spec.qkv_limit});
  if (spec.narrow_value_dim > 0) {
    const Columns v = from(k + spec.kv_width());
    to_.Emit(CopyHeads{.from = v,
                       .to = v,
                       .heads = spec.num_kv_heads,
                       .from_width = spec.narrow_value_dim,
                       .to_width = spec.head_dim});
  }
  if (spec.qk_norm != QkNorm::kLayerBeforeRope) return;
  const auto norm = [&](const Columns& x, int64_t heads, const std::vector<float>& weight,
                        const std::vector<float>& bias) {
    to_.Emit(NormHeads{.x = x,
                       .heads = heads,
                       .width = spec.head_dim,
                       .weight = to_.Vector(weight, true),
                       .bias = to_.Vector(bias, spec.qk_norm_biases),
                       .has_each = spec.qk_norm_of_heads});
  };
  norm(from(q), spec.num_heads, weights.q_norm, weights.q_norm_bias);
  norm(from(k), spec.num_kv_heads, weights.k_norm, weights.k_norm_bias);
}

void DecoderBuilder::MakeAttentionGates(size_t index) {
  const LayerSpec& layer = share_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const AttentionWeights& own = weights.attention;
  if (to_.InputType(own.gate.inputs) != to_.InputType(own.qkv.inputs)) {
    Norm* const norm =
        EmitRowNorm(weights.attention_norms.before, weights.attention_norms.before_bias,
                    !layer.attention_norms.before.empty(), /*adds=*/false, &own.gate, Normed());
    if (norm != nullptr) norm->eps_factor = layer.attention_norms.eps_factor;
  }
  const int64_t count = NumGates(layer.attention);
  const RowsIn rows = to_.is_device() ? NormedFor(index, own.gate, own.qkv) : Normed();
  to_.Multiply(own.gate, rows, AttentionGates(count), count, hidden_);
}

void DecoderBuilder::EmitAttentionGate(const AttentionSpec& spec, const AttentionWeights& weights,
                                       BufferId rows, ElementType type, int64_t width) {
  const int64_t count = NumGates(spec);
  to_.Emit(GateAttended{.x = rows,
                        .type = type,
                        .gates = AttentionGates(count),
                        .width = width,
                        .num_gates = count,
                        .is_softplus = spec.gate_is_softplus,
                        .bias = to_.Vector(weights.gate_bias, !spec.gate_bias.empty()),
                        .num_biases = spec.num_heads});
}

BufferId DecoderBuilder::AttentionGates(int64_t count) {
  return to_.F32("attention_gates", Extent::kStep, count);
}

void DecoderBuilder::AddSquares(size_t index, RopeAppend& append) {
  const int64_t heads = Whole(index).attention.num_heads;
  append.q_squares = to_.F32("q_squares", Extent::kStep, heads);
  append.k_squares = to_.F32("k_squares", Extent::kStep, heads);
  if (!is_shared_) return;
  append.own_q_squares = to_.F32("own_q_squares", Extent::kStep, heads);
  append.own_k_squares = to_.F32("own_k_squares", Extent::kStep, heads);
  append.joined = Joined(heads * 4);
}

LatentLayer DecoderBuilder::LatentOf(size_t index, int64_t cache_layer) {
  const AttentionSpec& spec = share_.layers[index].attention;
  return {.spec = spec,
          .weights = weights_.layers[index].attention,
          .index = static_cast<int64_t>(index),
          .cache_layer = cache_layer,
          .normed = Normed(),
          .hidden = hidden_,
          .cos_sin = spec.rope ? RopeTableOf(spec.rope_table) : kNone,
          .num_threads = num_threads_};
}

ElementType DecoderBuilder::AttendedType(size_t index) const {
  // The output norm reads F32 rows.
  if (!share_.layers[index].attention.output_norm.empty()) return ElementType::kF32;
  return to_.InputType(weights_.layers[index].attention.output.inputs);
}

BufferId DecoderBuilder::Attended(size_t index) {
  if (!share_.layers[index].attention.output_norm.empty())
    return to_.F32("attended_before_norm", Extent::kStep, AttendedWidth(index));
  return to_.Inputs("attended", Extent::kStep, AttendedWidth(index));
}

BufferId DecoderBuilder::OwnAttended(size_t index) {
  if (!is_shared_) return Attended(index);
  const AttentionSpec& spec = share_.layers[index].attention;
  if (!spec.output_norm.empty())
    return to_.F32("own_attended_before_norm", Extent::kStep, spec.output_width());
  return to_.Inputs("own_attended", Extent::kStep, spec.output_width());
}

BufferId DecoderBuilder::LastAttended(int64_t bytes) {
  return to_.Array("last_attended", Extent::kWanted, bytes);
}

DecoderBuilder::Left DecoderBuilder::Attend(size_t index, int64_t cache_layer) {
  const AttentionSpec& spec = share_.layers[index].attention;
  const AttentionWeights& weights = weights_.layers[index].attention;
  const ElementType type = AttendedType(index);
  Attended(index);
  OwnAttended(index);
  if (spec.latent) {
    const BufferId latent = EmitLatentAttention(to_, LatentOf(index, cache_layer), type);
    const int64_t width = spec.num_heads * int64_t{spec.value_dim()};
    // With latent attention, gates multiply the heads' latent vectors. This has the same effect as
    // gating the head's values, because value matrices are linear.
    const ElementType latent_type = to_.is_device() ? ElementType::kBF16 : ElementType::kF32;
    if (spec.has_gate_module()) EmitAttentionGate(spec, weights, latent, latent_type, width);
    return {latent, width * BitsPerElement(latent_type) / 8};
  }
  const int64_t scratch_bytes =
      to_.is_device() ? to_.device().attention_partials
                      : kernels::AttentionScratchBytes(KvLayoutOf(spec, options_), spec.num_heads,
                                                       options_.max_rows, options_.max_slices,
                                                       options_.max_context, num_threads_);
  const bool is_narrow = spec.narrow_value_dim > 0;
  const BufferId out =
      is_narrow ? to_.Inputs("wide_attended", Extent::kStep, spec.q_width()) : OwnAttended(index);
  BufferId narrow = kNone, scales = kNone;
  if (to_.is_device() && !is_shared_ && !is_narrow && spec.output_norm.empty()) {
    narrow = to_.Array("attended_f8", Extent::kStep, spec.output_width());
    scales = to_.F32("attended_scales", Extent::kStep, 1);
  }
  to_.Emit(program::Attend{.attention = to_.Attention(spec),
                           .cache_layer = cache_layer,
                           .q = to_.is_device() ? to_.Array("q", Extent::kStep, spec.q_width() * 2)
                                                : to_.F32("qkv", Extent::kStep, spec.row_width()),
                           .out = out,
                           .type = type,
                           .allows_bf16 = type == ElementType::kBF16,
                           .chosen = ChosenBlocks(spec),
                           .scratch = to_.Array("attention_scratch", Extent::kOnce, scratch_bytes),
                           .scratch_bytes = scratch_bytes,
                           .sinks = to_.Vector(weights.sinks, spec.sinks),
                           .k_scale = weights.kv_scales.k,
                           .v_scale = weights.kv_scales.v,
                           .narrow = narrow,
                           .scales = scales});
  if (is_narrow) {
    to_.Emit(CopyHeads{.from = {.buffer = out, .stride = spec.q_width()},
                       .to = {.buffer = OwnAttended(index), .stride = spec.output_width()},
                       .type = type,
                       .heads = spec.num_heads,
                       .from_width = spec.head_dim,
                       .to_width = spec.narrow_value_dim});
  }
  if (spec.has_gate_module())
    EmitAttentionGate(spec, weights, OwnAttended(index), type, spec.output_width());
  // On the CPU, Attend applies these gates.
  if (to_.is_device() && spec.gate == AttentionGate::kInQueries) {
    to_.Emit(GateAttended{.x = OwnAttended(index),
                          .type = type,
                          .gates = to_.Wide("qkv", Extent::kStep, spec.row_width()),
                          .width = spec.q_width(),
                          .num_gates = spec.q_width(),
                          .gates_type = to_.wide(),
                          .gates_stride = ProjectedWidth(spec)});
  }
  return {OwnAttended(index), spec.output_width() * BitsPerElement(type) / 8};
}

void DecoderBuilder::EndAttention(size_t index, int64_t cache_layer, const Left& left) {
  const AttentionSpec& spec = share_.layers[index].attention;
  const AttentionWeights& weights = weights_.layers[index].attention;
  if (spec.latent) {
    EmitLatentValues(to_, LatentOf(index, cache_layer), left.rows, OwnAttended(index),
                     AttendedType(index));
  }
  const int64_t all_width = AttendedWidth(index);
  const BufferId attended = Attended(index);
  if (is_shared_) {
    to_.Emit(Gather{.cut = Gather::Cut::kHeads,
                    .count = first_layer_ + static_cast<int64_t>(index),
                    .type = AttendedType(index),
                    .own = OwnAttended(index),
                    .all = attended,
                    .joined = Joined(all_width * 2)});
  }
  RowsIn rows{.data = attended};
  if (!spec.output_norm.empty()) {
    rows.data = to_.Inputs("attended", Extent::kStep, all_width);
    to_.Emit(NormTo{.x = attended,
                    .weight = to_.Vector(weights.output_norm, true),
                    .out = rows.data,
                    .type = to_.InputType(weights.output.inputs),
                    .width = all_width});
  }
  if (to_.is_device()) {
    rows.scales = to_.F32("attended_scales", Extent::kStep, 1);
    rows.narrow = to_.Array("attended_f8", Extent::kStep, all_width);
    to_.Emit(Convert{.x = attended,
                     .narrow = rows.narrow,
                     .scales = rows.scales,
                     .reader = ReaderOf(weights.output),
                     .width = all_width});
  }
  to_.Multiply(weights.output, rows, own_delta_, own_hidden_, all_width);
  ScaleDelta(own_delta_, spec.output_factor);
}

void DecoderBuilder::ScaleDelta(BufferId delta, float factor) {
  if (factor != 1) to_.Emit(Scale{.x = delta, .width = own_hidden_, .factor = factor});
}

BufferId DecoderBuilder::Mixed(const MixerSpec& spec) {
  return to_.F32("mixed", Extent::kStep, spec.InputRows());
}

BufferId DecoderBuilder::Convolved(const MixerSpec& spec) {
  return to_.F32("convolved", Extent::kStep, spec.conv_channels());
}

BufferId DecoderBuilder::MixerGate(const MixerSpec& spec) {
  return to_.F32("mixer_gate", Extent::kStep, spec.values_width());
}

ElementType DecoderBuilder::MixedType(size_t index) const {
  return to_.InputType(weights_.layers[index].mixer.output.inputs);
}

bool DecoderBuilder::IsDivided(size_t index) const {
  return share_.layers[index].mixer->num_heads < Whole(index).mixer->num_heads;
}

BufferId DecoderBuilder::AllMixed(size_t index) {
  return to_.Inputs("mixer_results", Extent::kStep, Whole(index).mixer->values_width());
}

BufferId DecoderBuilder::OwnMixed(size_t index) {
  if (!IsDivided(index)) return AllMixed(index);
  return to_.Inputs("own_mixer_results", Extent::kStep, share_.layers[index].mixer->values_width());
}

RowsIn DecoderBuilder::NormedFor(size_t index, const LinearWeights& weights,
                                 const LinearWeights& reader) {
  // On a device, rows are written in the format that `reader` reads. Only when the weights are
  // loaded is it known whether other products read the same format.
  const bool is_same = to_.is_device()
                           ? &weights == &reader
                           : to_.InputType(weights.inputs) == to_.InputType(reader.inputs);
  if (is_same) return Normed();
  const RowsIn rows = to_.Rows("normed_too", Extent::kStep, hidden_);
  EmitNorm(weights_.layers[index].attention_norms.before,
           !share_.layers[index].attention_norms.before.empty(), /*adds=*/false, &weights, rows);
  return rows;
}

void DecoderBuilder::BeginMixer(size_t index, int64_t cache_layer, const LinearWeights& reader) {
  const MixerSpec& spec = *share_.layers[index].mixer;
  const MixerWeights& weights = weights_.layers[index].mixer;
  const bool is_short = spec.kind == MixerSpec::Kind::kShortConvolution;
  const BufferId mixed = Mixed(spec);
  const int64_t stride = spec.InputRows();
  const MixerId mixer = to_.Mixer(spec);
  to_.Multiply(weights.in, NormedFor(index, weights.in, reader), mixed, stride, hidden_);
  to_.Emit(Convolve{.mixer = mixer,
                    .cache_layer = cache_layer,
                    .x = mixed,
                    .stride = stride,
                    .weight = to_.Vector(weights.conv, true),
                    .bias = to_.Vector(weights.conv_bias, spec.conv_bias),
                    .out = is_short          ? OwnMixed(index)
                           : to_.is_device() ? Convolved(spec)
                                             : kNone,
                    .type = MixedType(index)});
  to_.program().states.push_back(
      {.name = fmt::format("states of layer {}", index),
       .layer = cache_layer,
       .bytes_per_sequence = (spec.tail_numbers() + spec.matrix_numbers()) * 4});
  if (is_short) return;
  const bool is_delta = spec.kind == MixerSpec::Kind::kDeltaRule;
  const int64_t heads = spec.num_heads;
  UpdateState update{
      .mixer = mixer,
      .cache_layer = cache_layer,
      .x = to_.is_device() ? Convolved(spec) : mixed,
      .stride = to_.is_device() ? spec.conv_channels() : stride,
      .steps = {.buffer = mixed, .begin = stride - heads, .stride = stride},
      .gates = to_.is_device() ? kNone
                               : to_.F32("state_gates", Extent::kStep,
                                         heads + (spec.decays_keys ? spec.decays_width() : heads)),
      .a_log = to_.Vector(weights.a_log, true),
      .step_bias = to_.Vector(weights.step_bias, true),
      .skip = to_.Vector(weights.skip, spec.kind == MixerSpec::Kind::kStateSpace)};
  if (is_delta) {
    const int64_t width = !spec.decays_keys    ? 2 * heads
                          : spec.low_rank == 0 ? heads + spec.decays_width()
                                               : heads;
    const BufferId steps = to_.F32("steps", Extent::kStep, width);
    to_.Multiply(weights.steps, NormedFor(index, weights.steps, reader), steps, width, hidden_);
    update.steps = {.buffer = steps, .stride = width};
    if (spec.decays_keys) update.decays = {.buffer = steps, .begin = heads, .stride = width};
  }
  if (spec.low_rank > 0) {
    const BufferId decays = to_.F32("mixer_decays", Extent::kStep, spec.decays_width());
    MultiplyLowRank(index, weights.decay_down, weights.decay_up, reader, decays,
                    spec.decays_width());
    MultiplyLowRank(index, weights.gate_down, weights.gate_up, reader, MixerGate(spec),
                    spec.values_width());
    update.decays = {.buffer = decays, .stride = spec.decays_width()};
  }
  to_.Emit(update);
  // The gate is emitted before rows are dropped, so that a later operator reads only one buffer.
  if (to_.is_device()) EmitStateGate(index);
}

void DecoderBuilder::EmitStateGate(size_t index) {
  const MixerSpec& spec = *share_.layers[index].mixer;
  Columns z{.buffer = Mixed(spec), .begin = spec.conv_channels(), .stride = spec.InputRows()};
  if (spec.low_rank > 0) z = {.buffer = MixerGate(spec), .stride = spec.values_width()};
  to_.Emit(GateStates{
      .mixer = to_.Mixer(spec),
      .x = to_.is_device() ? Convolved(spec) : Mixed(spec),
      .stride = to_.is_device() ? spec.conv_channels() : spec.InputRows(),
      .z = z,
      .norm = to_.Vector(weights_.layers[index].mixer.norm, spec.norm != MixerSpec::Norm::kNone),
      .out = OwnMixed(index),
      .type = MixedType(index)});
}

void DecoderBuilder::MultiplyLowRank(size_t index, const LinearWeights& down,
                                     const LinearWeights& up, const LinearWeights& reader,
                                     BufferId y, int64_t width) {
  const int64_t rank = share_.layers[index].mixer->low_rank;
  const bool is_device = to_.is_device();
  const BufferId between = is_device ? to_.Inputs("low_rank", Extent::kStep, rank)
                                     : to_.F32("low_rank", Extent::kStep, rank);
  Project& first = to_.Multiply(down, NormedFor(index, down, reader), between, rank, hidden_);
  if (is_device) first.y_type = ElementType::kBF16;
  Project& product = to_.Multiply(up, {.data = between}, y, width, rank);
  if (is_device) return;
  // The product is small; its inputs are F32 and never rounded.
  product.x_type = ElementType::kF32;
  product.is_plain = true;
}

void DecoderBuilder::EndMixer(size_t index) {
  const MixerSpec& spec = *share_.layers[index].mixer;
  const MixerWeights& weights = weights_.layers[index].mixer;
  const bool adds = share_.layers[index].attention.exists();
  if (spec.kind != MixerSpec::Kind::kShortConvolution && !to_.is_device()) EmitStateGate(index);
  if (IsDivided(index)) {
    to_.Emit(
        Gather{.cut = Gather::Cut::kMixer,
               .count = first_layer_ + static_cast<int64_t>(index),
               .type = MixedType(index),
               .own = OwnMixed(index),
               .all = AllMixed(index),
               .joined = to_.is_device() ? Joined(Whole(index).mixer->values_width() * 2) : kNone});
  }
  const BufferId delta = adds ? to_.F32("mixer_delta", Extent::kStep, own_hidden_) : own_delta_;
  const int64_t width = Whole(index).mixer->values_width();
  RowsIn rows{.data = AllMixed(index)};
  if (to_.is_device()) {
    rows.scales = to_.F32("mixed_scales", Extent::kStep, 1);
    rows.narrow = to_.Array("mixed_f8", Extent::kStep, width);
    to_.Emit(Convert{.x = rows.data,
                     .narrow = rows.narrow,
                     .scales = rows.scales,
                     .reader = ReaderOf(weights.output),
                     .width = width});
  }
  to_.Multiply(weights.output, rows, delta, own_hidden_, width);
  ScaleDelta(delta, spec.output_factor);
  if (adds) to_.Emit(Add{.x = own_delta_, .y = delta, .width = own_hidden_});
}

void DecoderBuilder::MoveRows(KeepRows& keep) {
  keep.kept[0].to = LastResidual();
  if (spec_.layer_embeddings.width == 0) return;
  const int64_t bytes = spec_.layer_embeddings.width * 4;
  keep.kept[2].columns.begin = (std::ssize(spec_.layers) - 1) * bytes;
  keep.kept[2].bytes = bytes;
  keep.kept[2].to = to_.Array("last_layer_embeddings", Extent::kWanted, bytes);
}

}  // namespace sluice::program
