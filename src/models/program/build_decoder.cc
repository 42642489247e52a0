#include "models/program/build_decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/attention.h"
#include "models/kv_layout.h"
#include "models/program/decoder_builder.h"

namespace sluice::program {

DecoderBuilder::DecoderBuilder(const DecoderParts& parts)
    : spec_(parts.spec),
      share_(ShareOf(parts.spec, parts.place)),
      options_(parts.options),
      place_(parts.place),
      num_threads_(parts.num_threads),
      weights_(parts.weights),
      target_(parts.target),
      is_shared_(parts.place.tensor_size > 1),
      hidden_(parts.spec.hidden_size),
      own_hidden_(OwnRows(parts.spec.hidden_size).size()),
      first_layer_(LayersOf(parts.spec, parts.place).begin),
      stage_rows_(StageRows::For(parts.spec, parts.place, parts.options.handed)),
      to_(parts.options, parts.rounding, parts.spec.SplitsInputs(parts.options.compute_type),
          parts.device) {
  Program& program = to_.program();
  program.norm_eps = spec_.norm_eps;
  program.rope_tables = spec_.rope_tables;
  for (const LayerSpec& layer : spec_.layers) {
    if (!layer.moe) continue;
    program.limits.pairs = std::max(program.limits.pairs, MostPairs(layer.moe->top_k));
  }
  residual_ = to_.F32("residual", Extent::kStep, stage_rows_.widest());
  // With pipeline stages, devices have one step in flight, and CPUs have one per stage.
  if (place_.num_stages > 1) {
    to_.Keep(residual_, to_.is_device() ? 1 : place_.num_stages);
    if (to_.is_device()) to_.Keep(LastResidual());
  }
  delta_ = to_.F32("delta", Extent::kStep, hidden_);
  own_delta_ = is_shared_ ? to_.F32("own_delta", Extent::kStep, own_hidden_) : delta_;
}

Program DecoderBuilder::Build() {
  if (options_.drafter != nullptr && options_.drafter->drafts_blocks()) return BuildBlockDrafter();
  const bool is_staged = place_.num_stages > 1;
  if (!place_.is_first_stage()) {
    to_.Emit(
        Receive{.out = residual_, .width = stage_rows_.received(), .from_stage = place_.stage - 1});
  }
  std::vector<int32_t> skips = {to_.next()};
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kHasRows});
  if (place_.is_first_stage()) EmbedTokens();
  AppendFromStages();
  FillRopeTables();
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    to_.InLayer([&] {
      if (is_staged && !to_.is_device()) to_.Emit(Progress{});
      const bool keeps_wanted = place_.is_last_stage() && i == LastMixing() && !spec_.streams &&
                                !options_.handed.is_normed && !StagesHandOn();
      BeginMixing(i, static_cast<int64_t>(i));
      HandOnInput(first_layer_ + static_cast<int64_t>(i));
      FinishLayer(i, keeps_wanted, skips);
      const int64_t layer = first_layer_ + static_cast<int64_t>(i);
      if (layer < spec_.image_levels && !keeps_wanted && TakesImages())
        to_.Emit(AddImages{.x = residual_, .width = hidden_, .level = layer});
    });
  }
  CollapseStreams(weights_.final_streams, /*is_last=*/true);
  if (spec_.streams && !options_.handed.is_normed) skips.push_back(KeepWanted());
  if (options_.handed.is_normed && !is_staged) {
    HandOnNormed(has_delta_);
    skips.push_back(KeepWanted());
  }
  const int32_t body_end = to_.next();
  if (is_staged) HandOn();
  to_.program().results_begin = to_.next();
  if (place_.is_first_stage()) {
    if (is_staged) {
      skips.push_back(to_.next());
      if (to_.is_device()) to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kWantsRows});
      to_.Emit(Receive{.out = residual_,
                       .wanted_out = to_.is_device() ? LastResidual() : kNone,
                       .width = stage_rows_.returned(),
                       .from_stage = place_.num_stages - 1});
      if (!to_.is_device()) {
        skips.back() = to_.next();
        to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kHasRows});
      }
      if (StagesHandOn()) {
        HandOnReturned();
        skips.push_back(KeepWanted());
      }
    }
    MakeResults();
  }
  // On the CPU, the next stage also receives a message for steps without rows.
  const bool hands_on = is_staged && !to_.is_device();
  for (const int32_t skip : skips)
    to_.SkipTo(skip, hands_on && skip < body_end ? body_end : to_.next());
  return std::move(to_.program());
}

void DecoderBuilder::FinishLayer(size_t index, bool keeps_wanted, std::vector<int32_t>& skips) {
  if (keeps_wanted) {
    skips.push_back(to_.next());
    to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kWantsRows});
  }
  EndMixing(index, static_cast<int64_t>(index), keeps_wanted);
  RunMlp(index);
  EndLayer(index);
}

Program DecoderBuilder::BuildBlockDrafter() {
  FillRopeTables();
  const int32_t of_target = to_.next();
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kTakesTarget});
  ProjectTargets(residual_);
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    EmitNorm(weights_.drafter.hidden_norm, true, /*adds=*/false, &weights_.layers[i].attention.qkv,
             Normed());
    BeginAttention(i, static_cast<int64_t>(i));
  }
  to_.SkipTo(of_target, to_.next());
  to_.program().states.clear();  // cleared, because the layers declare the same states again
  const int32_t of_block = to_.next();
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kTakesOwn});
  to_.Emit(Embed{.table = to_.Table(EmbeddingOwner().embedding),
                 .out = residual_,
                 .vocab = spec_.vocab_size,
                 .width = hidden_,
                 .scale = spec_.embedding_scale,
                 .placeholders = spec_.placeholders});
  std::vector<int32_t> skips = {of_block};
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    to_.InLayer([&] {
      BeginMixing(i, static_cast<int64_t>(i));
      FinishLayer(i, /*keeps_wanted=*/i == LastMixing(), skips);
    });
  }
  to_.program().results_begin = to_.next();
  skips.push_back(to_.next());
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kTakesOwn});
  MakeLogits(/*adds=*/true);
  for (const int32_t skip : skips) to_.SkipTo(skip, to_.next());
  return std::move(to_.program());
}

Program DecoderBuilder::BuildLayer(size_t index) {
  FillRopeTables();
  BeginMixing(index, /*cache_layer=*/0);
  EndMixing(index, /*cache_layer=*/0, /*keeps_wanted=*/false);
  RunMlp(index);
  to_.Emit(Add{.x = residual_, .y = delta_, .width = hidden_});
  to_.program().results_begin = to_.next();
  return std::move(to_.program());
}

RowRange DecoderBuilder::OwnRows(int64_t count) const {
  return CutRows(count, place_.tensor_rank, place_.tensor_size);
}

const LayerSpec& DecoderBuilder::Whole(size_t index) const {
  return spec_.layers[static_cast<size_t>(first_layer_) + index];
}

size_t DecoderBuilder::LastMixing() const {
  size_t last = share_.layers.size() - 1;
  while (last > 0 && !share_.layers[last].mixes()) --last;
  return last;
}

int64_t DecoderBuilder::MostPairs(int64_t top_k) const {
  constexpr int64_t kMostDevicePairs = 8192;
  if (!to_.is_device()) return MostExpertPairs(top_k, options_.max_rows);
  return std::max(top_k, std::min(options_.max_rows * top_k, kMostDevicePairs));
}

BufferId DecoderBuilder::Joined(int64_t width_bytes) {
  return is_shared_ && to_.is_device() ? to_.Array("joined", Extent::kStep, width_bytes) : kNone;
}

Norm& DecoderBuilder::EmitNorm(const std::vector<float>& weight, bool exists, bool adds,
                               const LinearWeights* reader, const RowsIn& normed) {
  Norm norm{.residual = residual_,
            .delta = adds ? delta_ : kNone,
            .weight = to_.Vector(weight, exists),
            .out = normed.data,
            .type = reader != nullptr ? to_.InputType(reader->inputs) : ElementType::kF32,
            .width = hidden_};
  if (to_.is_device()) {
    if (reader != nullptr) norm.reader = ReaderOf(*reader);
    norm.scales = normed.scales;
    norm.delta_factor = spec_.residual_scale;
    if (adds) norm.sum_factor = std::exchange(sum_factor_, kNone);
  }
  return to_.Emit(norm);
}

Norm* DecoderBuilder::EmitRowNorm(const std::vector<float>& weight, const std::vector<float>& bias,
                                  bool exists, bool adds, const LinearWeights* reader,
                                  const RowsIn& normed, std::optional<ElementType> type) {
  if (!exists || spec_.norm.kind == NormSpec::Kind::kRms) {
    Norm& norm = EmitNorm(weight, exists, adds, reader, normed);
    norm.type = type.value_or(norm.type);
    return &norm;
  }
  const ElementType own = reader != nullptr ? to_.InputType(reader->inputs) : ElementType::kF32;
  to_.Emit(LayerNorm{.residual = residual_,
                     .delta = adds ? delta_ : kNone,
                     .weight = to_.Vector(weight, true),
                     .bias = to_.Vector(bias, true),
                     .out = normed.data,
                     .scratch = to_.F32("norm_scratch", Extent::kStep, hidden_),
                     .type = type.value_or(own),
                     .width = hidden_});
  return nullptr;
}

void DecoderBuilder::EmitGather(int64_t count, ElementType type, BufferId own, BufferId all) {
  if (!is_shared_) return;
  to_.Emit(Gather{.count = count,
                  .type = type,
                  .own = own,
                  .all = all,
                  .joined = Joined(count * BitsPerElement(type) / 8)});
}

void DecoderBuilder::NormDelta(const std::vector<float>& weight, bool exists) {
  if (exists)
    to_.Emit(NormRows{.x = delta_,
                      .weight = to_.Vector(weight, true),
                      .width = hidden_,
                      .eps = spec_.after_norm_eps});
}

void DecoderBuilder::LeaveSublayer(const std::vector<float>& weight, bool exists) {
  NormDelta(weight, exists);
  if (spec_.residual_scale != 1 && !to_.is_device())
    to_.Emit(Scale{.x = delta_, .width = hidden_, .factor = spec_.residual_scale});
  ExpandStreams();
}

void DecoderBuilder::CollapseStreams(const StreamWeights& weights, bool is_last) {
  if (!spec_.streams) return;
  to_.Emit(program::CollapseStreams{.spec = *spec_.streams,
                                    .streams = Streams(),
                                    .matrix = to_.Vector(weights.matrix, true),
                                    .base = to_.Vector(weights.base, true),
                                    .scale = to_.Vector(weights.scale, true),
                                    .mixes = is_last ? kNone : StreamMixes(),
                                    .out = residual_,
                                    .width = hidden_});
}

void DecoderBuilder::ExpandStreams() {
  if (!spec_.streams) return;
  to_.Emit(program::ExpandStreams{.spec = *spec_.streams,
                                  .streams = Streams(),
                                  .mixes = StreamMixes(),
                                  .delta = delta_,
                                  .width = hidden_});
  has_delta_ = false;
}

void DecoderBuilder::HandOn() {
  if (to_.is_device())  // the norm also writes residual + delta back
    EmitNorm({}, false, /*adds=*/true, nullptr, Normed());
  else if (has_delta_)
    to_.Emit(Add{.x = residual_, .y = delta_, .width = hidden_});
  to_.Emit(Send{.x = residual_, .width = stage_rows_.handed_on(place_.is_last_stage())});
}

void DecoderBuilder::HandOnInput(int64_t layer) {
  // The norm before this layer has already added the previous layer's result to the residual.
  const std::vector<int64_t>& layers = options_.handed.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] != layer) continue;
    const int64_t stride = options_.handed.Width(hidden_);
    if (StagesHandOn()) {
      Columns to = HandedColumns();
      to.begin = static_cast<int64_t>(i) * hidden_;
      to_.Emit(CopyColumns{
          .from = {.buffer = residual_, .stride = hidden_}, .to = to, .width = hidden_});
      continue;
    }
    to_.Emit(HandRows{.x = residual_,
                      .width = hidden_,
                      .begin = static_cast<int64_t>(i) * hidden_,
                      .stride = stride,
                      .to = HandedMemory(Extent::kStep, stride)});
  }
}

BufferId DecoderBuilder::HandedMemory(Extent extent, int64_t width) {
  if (!to_.is_device()) return kNone;
  const BufferId memory = to_.F32(kHandedRows, extent, width);
  to_.Keep(memory);
  return memory;
}

Norm* DecoderBuilder::EmitFinalNorm(bool adds, const RowsIn& normed, ElementType type) {
  Norm* const norm = EmitRowNorm(weights_.final_norm, weights_.final_norm_bias,
                                 !spec_.final_norm.empty(), adds, nullptr, normed, type);
  if (norm != nullptr) norm->eps_factor = spec_.final_norm_eps_factor;
  return norm;
}

BufferId DecoderBuilder::FinalNormed(Extent extent, bool adds) {
  const BufferId normed = to_.F32("handed", extent, hidden_);
  if (to_.is_device()) {
    const RowsIn rows =
        extent == Extent::kStep ? Normed() : to_.Rows("last_normed", extent, hidden_);
    EmitFinalNorm(adds, rows, ElementType::kF32)->out_f32 = normed;
  } else {
    EmitFinalNorm(adds, {.data = normed}, ElementType::kF32);
  }
  return normed;
}

int32_t DecoderBuilder::KeepWanted() {
  const int32_t skip = to_.next();
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kWantsRows});
  KeepRows keep;
  keep.kept[0] = {{.buffer = residual_, .stride = hidden_ * 4}, hidden_ * 4};
  if (to_.is_device()) keep.kept[0].to = LastResidual();
  to_.Emit(keep);
  return skip;
}

void DecoderBuilder::HandOnReturned() {
  if (options_.handed.is_normed) return HandOnNormed(/*adds=*/false);
  const int64_t width = stage_rows_.handed;
  const BufferId handed = to_.F32("handed", Extent::kStep, width);
  to_.Emit(CopyColumns{
      .from = HandedColumns(), .to = {.buffer = handed, .stride = width}, .width = width});
  to_.Emit(HandRows{.x = handed, .width = width, .stride = width});
}

void DecoderBuilder::HandOnNormed(bool adds) {
  to_.Emit(HandRows{.x = FinalNormed(Extent::kStep, adds),
                    .width = hidden_,
                    .stride = hidden_,
                    .to = HandedMemory(Extent::kStep, hidden_)});
}

const DecoderWeights& DecoderBuilder::EmbeddingOwner() const {
  return target_ != nullptr && options_.drafter->embedding.empty() ? *target_ : weights_;
}

const DecoderWeights& DecoderBuilder::HeadOwner() const {
  return target_ != nullptr && options_.drafter->head.empty() ? *target_ : weights_;
}

RowsIn DecoderBuilder::JoinDrafts(const LinearWeights& reader, BufferId hidden, bool norms_hidden) {
  const DrafterSpec& drafter = *options_.drafter;
  JoinNorms join{.x = to_.F32("embedded", Extent::kStep, hidden_),
                 .y = hidden,
                 .x_weight = to_.Vector(weights_.drafter.token_norm, !drafter.token_norm.empty()),
                 .y_weight = to_.Vector(weights_.drafter.hidden_norm, norms_hidden),
                 .out = Joined2().data,
                 .type = to_.InputType(reader.inputs),
                 .width = hidden_};
  if (drafter.hidden_first) {
    std::swap(join.x, join.y);
    std::swap(join.x_weight, join.y_weight);
  }
  const RowsIn joined = Joined2();
  if (!to_.is_device()) {
    to_.Emit(join);
    return joined;
  }
  join.pieces = to_.Inputs("join_pieces", Extent::kStep, 2 * hidden_);
  to_.Emit(join);
  to_.Emit(Convert{.x = joined.data,
                   .narrow = joined.narrow,
                   .scales = joined.scales,
                   .reader = ReaderOf(reader),
                   .width = 2 * hidden_});
  return joined;
}

RowsIn DecoderBuilder::Joined2() {
  RowsIn rows = to_.Rows("joined_rows", Extent::kStep, 2 * hidden_);
  if (to_.is_device()) rows.narrow = to_.Array("joined_f8", Extent::kStep, 2 * hidden_);
  return rows;
}

void DecoderBuilder::ProjectTargets(BufferId out) {
  const DrafterSpec& drafter = *options_.drafter;
  const LinearWeights& projection = weights_.drafter.projection;
  const int64_t width = drafter.target_width();
  const RowsIn rows = to_.Rows("hidden", Extent::kStep, width);
  TakeHidden take{.out = rows.data,
                  .type = to_.InputType(projection.inputs),
                  .width = width,
                  .part_width = drafter.target_hidden_size};
  if (to_.is_device()) {
    take.pieces = to_.F32("hidden_pieces", Extent::kStep, width);
    take.joined = to_.F32("hidden_joined", Extent::kStep, width);
    take.scales = rows.scales;
    take.reader = ReaderOf(projection);
  }
  to_.Emit(take);
  to_.Multiply(projection, rows, out, hidden_, width);
}

void DecoderBuilder::EmbedDrafts() {
  const DrafterSpec& drafter = *options_.drafter;
  const LinearWeights& projection = weights_.drafter.projection;
  to_.Emit(Embed{.table = to_.Table(EmbeddingOwner().embedding),
                 .out = to_.F32("embedded", Extent::kStep, hidden_),
                 .vocab = spec_.vocab_size,
                 .width = hidden_,
                 .scale = spec_.embedding_scale,
                 .placeholders = spec_.placeholders});
  if (drafter.kind != DrafterSpec::Kind::kEagle3) {
    const BufferId hidden = to_.F32("hidden", Extent::kStep, hidden_);
    to_.Emit(TakeHidden{.out = hidden, .width = hidden_, .part_width = hidden_});
    to_.Multiply(projection, JoinDrafts(projection, hidden, !drafter.hidden_norm.empty()),
                 residual_, hidden_, 2 * hidden_);
    return;
  }
  const int32_t of_target = to_.next();
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kTakesTarget});
  ProjectTargets(residual_);
  to_.SkipTo(of_target, to_.next());
  const int32_t of_own = to_.next();
  to_.Emit(SkipUnless{.condition = SkipUnless::Condition::kTakesOwn});
  to_.Emit(TakeHidden{.out = residual_, .width = hidden_, .part_width = hidden_});
  to_.SkipTo(of_own, to_.next());
  if (drafter.norms_residual) {
    to_.Emit(NormRows{.x = residual_,
                      .weight = to_.Vector(weights_.drafter.hidden_norm, true),
                      .width = hidden_});
  }
}

void DecoderBuilder::EmbedTokens() {
  if (options_.drafter != nullptr) return EmbedDrafts();
  to_.Emit(Embed{.table = to_.Table(weights_.embedding),
                 .out = residual_,
                 .own = Joined(hidden_ * 4),
                 .scratch = is_shared_ ? delta_ : kNone,
                 .vocab = spec_.vocab_size,
                 .width = hidden_,
                 .scale = spec_.embedding_scale,
                 .placeholders = spec_.placeholders,
                 .lora = weights_.embedding_lora,
                 .lora_scratch = to_.LoraScratch(Extent::kStep)});
  if (!spec_.positions.module.empty()) {
    to_.Emit(AddEmbeddings{.x = residual_,
                           .positions = to_.Vector(weights_.positions, true),
                           .width = hidden_,
                           .first_position = spec_.positions.first});
  }
  for (int64_t stream = 0; spec_.streams && stream < spec_.streams->count; ++stream) {
    to_.Emit(CopyColumns{.from = {.buffer = residual_, .stride = hidden_},
                         .to = {.buffer = Streams(),
                                .begin = stream * hidden_,
                                .stride = spec_.streams->count * hidden_},
                         .width = hidden_});
  }
  if (spec_.norms_embedding) {
    to_.Emit(NormRows{
        .x = residual_, .weight = to_.Vector(weights_.embedding_norm, true), .width = hidden_});
  }
  if (TakesImages()) to_.Emit(PlaceImages{.x = residual_, .width = hidden_});
  if (spec_.layer_embeddings.width > 0) EmbedInLayers();
  if (spec_.layer_embeddings.width == 0 || place_.num_stages == 1) return;
  const int64_t width = spec_.layer_embeddings.width;
  const int64_t handed = stage_rows_.embedding_layers * width;
  to_.Emit(CopyColumns{
      .from = {.buffer = LayerEmbeddings(),
               .begin = stage_rows_.first_embedding_layer * width,
               .stride = AllEmbeddings()},
      .to = {.buffer = residual_, .rows_before = stage_rows_.returned(), .stride = handed},
      .width = handed});
}

void DecoderBuilder::EmbedInLayers() {
  const int64_t width = spec_.layer_embeddings.width, all = AllEmbeddings();
  if (to_.is_device()) return MixInLayers();
  const BufferId lookups = to_.F32("layer_lookups", Extent::kStep, all);
  to_.Emit(Embed{.table = to_.Table(weights_.layer_embeddings),
                 .out = LayerEmbeddings(),
                 .scratch = is_shared_ ? lookups : kNone,
                 .vocab = spec_.layer_embeddings.vocab_size,
                 .width = all});
  const LinearWeights& projection = weights_.layer_projection;
  const int64_t own = OwnRows(all).size();
  const BufferId projected = is_shared_ ? to_.F32("own_projected", Extent::kStep, own) : lookups;
  EmitNorm({}, false, /*adds=*/false, &projection, Normed());
  to_.Multiply(projection, Normed(), projected, own, hidden_);
  EmitGather(all, ElementType::kF32, projected, lookups);
  to_.Emit(Scale{.x = lookups, .width = all, .factor = 1 / std::sqrt(static_cast<float>(hidden_))});
  to_.Emit(NormRows{.x = lookups,
                    .weight = to_.Vector(weights_.layer_norm, true),
                    .heads = std::ssize(spec_.layers),
                    .width = width});
  to_.Emit(Mix{.x = LayerEmbeddings(),
               .y = lookups,
               .width = all,
               .x_factor = std::sqrt(static_cast<float>(width)),
               .sum_factor = std::sqrt(0.5f)});
}

void DecoderBuilder::MixInLayers() {
  const int64_t width = spec_.layer_embeddings.width, all = AllEmbeddings();
  const LinearWeights& projection = weights_.layer_projection;
  EmitNorm({}, false, /*adds=*/false, &projection, Normed());
  to_.Multiply(projection, Normed(), LayerEmbeddings(), all, hidden_);
  to_.Emit(MixTable{.table = to_.Table(weights_.layer_embeddings),
                    .weight = to_.Vector(weights_.layer_norm, true),
                    .x = LayerEmbeddings(),
                    .num_layers = std::ssize(spec_.layers),
                    .width = width,
                    .projection_scale = 1 / std::sqrt(static_cast<float>(hidden_)),
                    .table_scale = std::sqrt(static_cast<float>(width)),
                    .sum_scale = std::sqrt(0.5f)});
}

void DecoderBuilder::AppendFromStages() {
  if (to_.is_device()) return;  // devices do not share keys with other stages
  for (size_t i = 0; i < stage_rows_.num_received; ++i) {
    const StageRows::Keys& keys = stage_rows_.keys[i];
    if (keys.user < 0) continue;
    const KvScales& scales = weights_.layers[static_cast<size_t>(keys.user)].attention.kv_scales;
    to_.Emit(AppendReceived{.cache_layer = keys.user,
                            .keys = MessageOf(keys),
                            .width = keys.width,
                            .k_scale = scales.k,
                            .v_scale = scales.v});
  }
}

Columns DecoderBuilder::MessageOf(const StageRows::Keys& keys) const {
  return {.buffer = residual_, .rows_before = keys.first, .stride = 2 * keys.width};
}

BufferId DecoderBuilder::RopeTableOf(int table) {
  const auto& frequencies = spec_.rope_tables[static_cast<size_t>(table)];
  return to_.F32(fmt::format("rope_{}", table), Extent::kStep, 2 * std::ssize(frequencies));
}

void DecoderBuilder::FillRopeTables() {
  for (int table = 0; table < std::ssize(spec_.rope_tables); ++table) {
    const bool has_axes = table == 0 && !spec_.rope_axes.empty() && TakesImages();
    if (has_axes) to_.program().rope_axes = {spec_.rope_axes};
    to_.Emit(RopeTable{.table = table,
                       .axes = has_axes ? 0 : kNone,
                       .amplitude = table == 0 ? spec_.rope_amplitude : 1,
                       .out = RopeTableOf(table)});
  }
}

Columns DecoderBuilder::EmbeddingsOfLayers() {
  if (place_.is_first_stage()) return {.buffer = LayerEmbeddings(), .stride = AllEmbeddings()};
  return {.buffer = residual_,
          .rows_before = stage_rows_.returned(),
          .stride = stage_rows_.embedding_layers * stage_rows_.embedding_width};
}

void DecoderBuilder::EndLayer(size_t index) {
  const LayerWeights& weights = weights_.layers[index];
  if (spec_.layer_embeddings.width > 0) AddLayerEmbedding(index);
  if (Whole(index).residual_factor.empty()) return;
  if (to_.is_device()) {
    sum_factor_ = to_.Vector(weights.residual_factor, true);
    return;
  }
  for (const BufferId rows : {residual_, delta_}) {
    to_.Emit(
        Scale{.x = rows, .width = hidden_, .vector = to_.Vector(weights.residual_factor, true)});
  }
}

void DecoderBuilder::AddLayerEmbedding(size_t index) {
  const LayerEmbeddingWeights& weights = weights_.layers[index].embedding;
  const int64_t width = spec_.layer_embeddings.width;
  const RowRange own = OwnRows(width);
  EmitNorm({}, false, /*adds=*/true, &weights.gate, Normed());
  if (to_.is_device()) return GateLayerEmbedding(index);
  // In each row, gates and values are adjacent, like gate and up of an MLP.
  const BufferId gates = to_.F32("layer_gates", Extent::kStep, 2 * own.size());
  to_.Multiply(weights.gate, Normed(), gates, own.size(), hidden_).y_stride = 2 * own.size();
  Columns from = EmbeddingsOfLayers();
  const int64_t first =
      place_.is_first_stage() ? 0 : first_layer_ - stage_rows_.first_embedding_layer;
  from.begin = (first + static_cast<int64_t>(index)) * width + own.begin;
  to_.Emit(CopyColumns{.from = from,
                       .to = {.buffer = gates, .begin = own.size(), .stride = 2 * own.size()},
                       .width = own.size()});
  const ElementType type = to_.InputType(weights.projection.inputs);
  const RowsIn gated =
      EmitGate({.gate = Gate::kGeluTanh, .x = gates, .type = type, .width = own.size()},
               ReaderOf(weights.projection), "layer_gated", Extent::kStep, width);
  to_.Multiply(weights.projection, gated, own_delta_, own_hidden_, width);
  GatherDelta();
  LeaveSublayer(weights.norm, true);
}

void DecoderBuilder::GateLayerEmbedding(size_t index) {
  const LayerEmbeddingWeights& weights = weights_.layers[index].embedding;
  const int64_t width = spec_.layer_embeddings.width;
  const BufferId gates = to_.Wide("gate_up", Extent::kPart, width);
  Columns factors = EmbeddingsOfLayers();
  factors.begin = static_cast<int64_t>(index) * width;
  to_.InParts(to_.program().limits.part, 1, [&] {
    to_.Multiply(weights.gate, Normed(), gates, width, hidden_).y_type = to_.wide();
    const RowsIn gated = EmitGate({.gate = Gate::kGeluTanh,
                                   .x = gates,
                                   .type = ElementType::kBF16,
                                   .width = width,
                                   .factors = factors},
                                  ReaderOf(weights.projection), "activated", Extent::kPart, width);
    to_.Multiply(weights.projection, gated, delta_, hidden_, width);
  });
  NormDelta(weights.norm, true);
}

void DecoderBuilder::MakeResults() {
  const bool adds = place_.num_stages == 1 && !options_.handed.is_normed && !spec_.streams;
  if (spec_.head.kind == HeadSpec::Kind::kVocabulary) {
    MakeLogits(adds);
    if (options_.drafter != nullptr) HandOnDrafts();
    return;
  }
  if (place_.rank() != 0) return;  // every rank has all rows, so only rank 0 outputs them
  const BufferId normed = to_.F32("last_normed", Extent::kWanted, hidden_);
  if (to_.is_device()) {
    EmitNorm(weights_.final_norm, true, adds, nullptr, Normed()).out_f32 = normed;
    to_.Emit(CopyResults{.x = normed, .width = hidden_});
    return;
  }
  EmitFinalNorm(adds, {.data = normed}, ElementType::kF32);
  if (spec_.head.kind == HeadSpec::Kind::kNone) {
    to_.Emit(CopyResults{.x = normed, .width = hidden_});
  } else {
    to_.Emit(Score{.x = normed,
                   .weights = to_.Vector(weights_.scores, true),
                   .width = hidden_,
                   .num_scores = spec_.head.num_scores});
  }
}

void DecoderBuilder::HandOnDrafts() {
  BufferId rows = residual_;
  if (options_.drafter->keeps_norm) {
    rows = FinalNormed(Extent::kWanted, /*adds=*/false);
  }
  to_.Emit(HandRows{.x = rows,
                    .width = hidden_,
                    .stride = hidden_,
                    .to = HandedMemory(Extent::kWanted, hidden_)});
}

void DecoderBuilder::MakeLogits(bool adds) {
  const int64_t words = OwnRows(NumOutputs()).size();
  const LinearWeights& head = HeadOwner().head;
  // The head's inputs do not affect the choice of experts, so they are not split into two BF16
  // numbers.
  const ElementType type = RoundingOf(head.inputs.format, options_) == InputRounding::kNone
                               ? options_.compute_type
                               : ElementType::kF32;
  const RowsIn normed = to_.Rows("last_normed", Extent::kWanted, hidden_);
  Norm* const norm = EmitFinalNorm(adds, normed, type);
  if (to_.is_device() && !spec_.tied_head) norm->reader = ReaderOf(head);
  const BufferId results = LogitsOfAll();
  const BufferId own = is_shared_ ? to_.F32("own_logits", Extent::kWanted, words) : results;
  const bool changes = spec_.logit_scale != 1 || spec_.logit_soft_cap != 0;
  Project& product = to_.Multiply(head, normed, own, words, hidden_);
  product.x_type = to_.is_device() ? ElementType::kBF16 : type;
  product.lora = weights_.head_lora;
  product.finds_maxima = !changes;
  if (spec_.tied_head) {
    product.linear = kNone;
    product.table = to_.Table(HeadOwner().embedding);
  }
  FinishLogits finish{
      .x = own, .width = words, .scale = spec_.logit_scale, .cap = spec_.logit_soft_cap};
  if (!to_.is_device()) to_.Emit(finish);
  if (is_shared_) {
    Gather gather{
        .cut = Gather::Cut::kLogits, .count = spec_.vocab_size, .own = own, .all = results};
    if (to_.is_device() && place_.rank() == 0)
      gather.joined = to_.F32("joined_logits", Extent::kWanted, spec_.vocab_size);
    to_.Emit(gather);
  }
  if (!to_.is_device() || place_.rank() != 0 || !changes) return;
  finish.x = results;
  finish.width = NumOutputs();
  to_.Emit(finish);
}

BufferId DecoderBuilder::LogitsOfAll() {
  if (!to_.is_device()) return to_.Results(NumOutputs());
  if (place_.rank() != 0) return kNone;
  const BufferId logits = to_.F32("logits", Extent::kWanted, NumOutputs());
  to_.Keep(logits);
  return logits;
}

Program BuildDecoder(const DecoderParts& parts) {
  return DecoderBuilder(parts).Build();
}

Program BuildDecoderLayer(const DecoderParts& parts, int64_t layer) {
  return DecoderBuilder(parts).BuildLayer(static_cast<size_t>(layer));
}

}  // namespace sluice::program
