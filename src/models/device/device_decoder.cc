#include "models/device/device_decoder.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/linear_plan.h"
#include "models/score_head.h"
#include "models/step_check.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

int64_t ElementBytes(ElementType type) {
  return type == ElementType::kF32 ? 4 : type == ElementType::kBF16 ? 2 : 1;
}

device::KvArrays ArraysOf(const kernels::KvCacheView& view, const DeviceLayerWeights& weights) {
  const bool is_f8 = view.layout.type == ElementType::kF8E4M3;
  return {.k = view.k,
          .v = view.v,
          .type = is_f8 ? ElementType::kF8E4M3 : ElementType::kBF16,
          .k_scale = is_f8 ? weights.k_scale : 1,
          .v_scale = is_f8 ? weights.v_scale : 1,
          .num_kv_heads = view.layout.num_kv_heads,
          .head_dim = view.layout.head_dim,
          .block_size = view.layout.block_size,
          .block_rows = static_cast<int>(view.layout.BlockStride() / view.layout.head_dim)};
}

}  // namespace

DeviceDecoder::DeviceDecoder(ModelConfig config, const ModelOptions& options, DecoderSpec spec,
                             const RankPlace& place, Parts parts)
    : Model(std::move(config)),
      options_(options),
      spec_(std::move(spec)),
      place_(place),
      share_(ShareOf(spec_, place)),
      layers_(LayersOf(spec_, place)),
      parts_(std::move(parts)) {
  parts_.stream->Fill(At(parts_.layout.linear_counters), 0, device::kLinearCounterBytes);
  if (parts_.lora != nullptr) {
    for (Begun& begun : begun_) begun.slots.reserve(static_cast<size_t>(options.max_slices));
  }
  if (spec_.head.kind != HeadSpec::Kind::kScores || place_.rank() != 0) return;
  for (Begun& begun : begun_) {
    begun.hidden.resize(static_cast<size_t>(std::min(options.max_logit_rows, options.max_rows) *
                                            spec_.hidden_size));
  }
}

DeviceDecoder::~DeviceDecoder() {
  if (parts_.ranks != nullptr) parts_.ranks->group().Abort();
  // Nothing may run any more when the memory goes; what failed was told by the step that failed.
  static_cast<void>(parts_.stream->Synchronize());
  if (pinned_logits_ != nullptr) parts_.device.Unpin(pinned_logits_);
  if (parts_.lora != nullptr) parts_.lora->Close();
}

Status DeviceDecoder::Tune() {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const int64_t logit_rows = std::min(options_.max_logit_rows, options_.max_rows);
  if (parts_.linear->TuningRows(options_.max_rows).empty()) return {};
  LOG_INFO("models",
           "choosing between own kernels and the algorithms of {}: what no earlier start measured "
           "is measured now",
           parts_.linear->library());
  const auto begin = std::chrono::steady_clock::now();
  // What the arrays hold does not matter. The weights of the layers take turns, from each on: one
  // of another kind than those before is measured by itself.
  const auto& layers = parts_.weights.layers;
  const auto tune = [&](DeviceLinearWeights DeviceLayerWeights::*member, int64_t data,
                        int64_t scales, int64_t most, int64_t y, ElementType y_type) -> Status {
    for (const int64_t rows : parts_.linear->TuningRows(most)) {
      std::vector<device::LinearArgs> products;
      for (const DeviceLayerWeights& layer : layers) {
        const DeviceLinearWeights& weights = layer.*member;
        if (weights.matrix.n == 0) continue;
        const device::RowsOut x = RowsAt(data, scales, weights.inputs);
        products.push_back(ProductOf(weights, x, rows, At(y), y_type));
      }
      const std::span<const device::LinearArgs> all = products;
      for (size_t i = 0; i < all.size(); ++i)
        RETURN_IF_ERROR(parts_.linear->Tune(*parts_.stream, all.subspan(i)));
    }
    return {};
  };
  using Layer = DeviceLayerWeights;
  const int64_t most = options_.max_rows;
  const int64_t delta = is_shared() ? layout.own_delta : layout.delta;
  RETURN_IF_ERROR(
      tune(&Layer::qkv, layout.normed, layout.normed_scales, most, layout.qkv, layout.wide));
  RETURN_IF_ERROR(tune(&Layer::output, layout.attended, layout.attended_scales, most, delta,
                       ElementType::kF32));
  RETURN_IF_ERROR(tune(&Layer::gate_up, layout.normed, layout.normed_scales, layout.mlp_rows,
                       layout.gate_up, layout.wide));
  RETURN_IF_ERROR(tune(&Layer::down, layout.activated, layout.activated_scales, layout.mlp_rows,
                       delta, ElementType::kF32));
  for (size_t i = 0; i < layers.size() && parts_.ranks == nullptr; ++i) {
    if (!share_.layers[i].moe) continue;
    const int64_t experts = share_.layers[i].moe->num_experts;
    RETURN_IF_ERROR(TuneExperts(
        layers[i].expert_gate_up, experts,
        RowsAt(layout.gathered, layout.gathered_scales, layers[i].expert_gate_up.first.inputs),
        At(layout.gate_up), layout.wide));
    RETURN_IF_ERROR(TuneExperts(
        layers[i].expert_down, experts,
        RowsAt(layout.activated, layout.activated_scales, layers[i].expert_down.first.inputs),
        At(layout.expert_results), ElementType::kF32));
  }
  RETURN_IF_ERROR(tune(&Layer::embedding_gate, layout.normed, layout.normed_scales, layout.mlp_rows,
                       layout.gate_up, layout.wide));
  RETURN_IF_ERROR(tune(&Layer::embedding_projection, layout.activated, layout.activated_scales,
                       layout.mlp_rows, delta, ElementType::kF32));
  const DeviceLinearWeights& projection = parts_.weights.layer_projection;
  for (const int64_t rows : parts_.linear->TuningRows(projection.matrix.n > 0 ? most : 0)) {
    RETURN_IF_ERROR(parts_.linear->Tune(*parts_.stream,
                                        ProductOf(projection, Normed(projection.inputs), rows,
                                                  At(layout.layer_embeddings), ElementType::kF32)));
  }
  const DeviceLinearWeights& head = parts_.weights.head;
  for (const int64_t rows : parts_.linear->TuningRows(head.matrix.n > 0 ? logit_rows : 0)) {
    RETURN_IF_ERROR(parts_.linear->Tune(
        *parts_.stream,
        ProductOf(head, Normed(head.inputs), rows,
                  At(is_shared() ? layout.own_logits : layout.logits), ElementType::kF32)));
  }
  RETURN_IF_ERROR(parts_.stream->Synchronize());
  parts_.linear->SaveTactics();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  LOG_INFO("models", "the kernels are chosen after {:.1f} s", seconds.count());
  return {};
}

void DeviceDecoder::PrepareLogits(std::span<float> logits) {
  if (pinned_logits_ != nullptr) parts_.device.Unpin(pinned_logits_);
  pinned_logits_ = nullptr;
  if (logits.empty()) return;
  if (parts_.device.Pin(logits.data(), static_cast<int64_t>(logits.size_bytes())))
    pinned_logits_ = logits.data();
}

device::RowsOut DeviceDecoder::RowsAt(int64_t data, int64_t scales,
                                      const DeviceInputs& inputs) const {
  return {.data = At(data),
          .type = inputs.type,
          .scales = inputs.is_rounded() ? At<float>(scales) : nullptr,
          .row_scale = inputs.row_scale,
          .static_scale = inputs.static_scale};
}

device::RowsOut DeviceDecoder::RowsFrom(int64_t first, device::RowsOut rows) const {
  rows.data =
      static_cast<std::byte*>(rows.data) + first * spec_.hidden_size * ElementBytes(rows.type);
  if (rows.scales != nullptr) rows.scales += first;
  return rows;
}

device::RowsOut DeviceDecoder::Normed(const DeviceInputs& inputs) const {
  return RowsAt(parts_.layout.normed, parts_.layout.normed_scales, inputs);
}

void DeviceDecoder::Norm(const Rows& rows, const float* delta, const float* weight,
                         const DeviceInputs& inputs, float* out_f32, float sum_factor) {
  parts_.kernels.rms_norm(parts_.stream->handle(), {.residual = rows.residual,
                                                    .delta = delta,
                                                    .delta_type = ElementType::kF32,
                                                    .weight = weight,
                                                    .eps = spec_.norm_eps,
                                                    .rows = rows.count,
                                                    .cols = spec_.hidden_size,
                                                    .out = Normed(inputs),
                                                    .out_f32 = out_f32,
                                                    .sum_factor = sum_factor,
                                                    .delta_factor = spec_.residual_scale});
}

void DeviceDecoder::FinalNorm(const Rows& rows, const DeviceInputs& inputs, float* out_f32) {
  // Another stage's rows come added.
  const bool adds = place_.num_stages == 1;
  Norm(rows, adds ? At<float>(parts_.layout.delta) : nullptr, parts_.weights.final_norm, inputs,
       out_f32, parts_.weights.layers.back().residual_factor);
}

void DeviceDecoder::NormDelta(const float* weight, int64_t rows) {
  if (weight != nullptr) NormRows(At<float>(parts_.layout.delta), nullptr, weight, rows);
}

void DeviceDecoder::NormRows(float* data, const float* delta, const float* weight, int64_t rows) {
  parts_.kernels.rms_norm(parts_.stream->handle(),
                          {.residual = data,
                           .delta = delta,
                           .delta_type = ElementType::kF32,
                           .weight = weight,
                           .eps = spec_.norm_eps,
                           .rows = rows,
                           .cols = spec_.hidden_size,
                           .out = {.data = data, .type = ElementType::kF32},
                           .out_f32 = nullptr});
}

device::LinearArgs DeviceDecoder::ProductOf(const DeviceLinearWeights& weights,
                                            const device::RowsOut& x, int64_t rows, void* y,
                                            ElementType y_type) const {
  return {.w = weights.matrix,
          .x = x.data,
          .x_type = x.type,
          .x_scales = x.scales,
          .m = rows,
          .y = y,
          .y_type = y_type,
          .y_stride = weights.matrix.n,
          .bias = weights.bias,
          .scratch = At(parts_.layout.linear_scratch),
          .same_x_scale = x.row_scale == device::RowScale::kPerToken ? 0 : x.static_scale,
          .counters = At<uint32_t>(parts_.layout.linear_counters)};
}

void DeviceDecoder::Multiply(const DeviceLinearWeights& weights, const device::RowsOut& x,
                             int64_t rows, void* y, ElementType y_type, int64_t first_row) {
  device::LinearArgs product = ProductOf(weights, x, rows, y, y_type);
  if (weights.input_order != nullptr) {
    CHECK(x.type == ElementType::kBF16);
    auto* const ordered = At<uint16_t>(parts_.layout.ordered);
    parts_.kernels.take_columns(parts_.stream->handle(),
                                {.in = static_cast<const uint16_t*>(x.data),
                                 .indices = weights.input_order,
                                 .rows = rows,
                                 .cols = weights.matrix.k,
                                 .out = ordered});
    product.x = ordered;
  }
  parts_.linear->Run(*parts_.stream, product);
  AddLora(weights.lora_layer, x, rows, y, y_type, weights.matrix.n, first_row);
}

std::optional<device::AddLoraArgs> DeviceDecoder::AdaptersOf(int layer) const {
  if (layer < 0 || !parts_.inputs.has_adapters()) return std::nullopt;
  const std::vector<int32_t>& slots = begun_[newest_].slots;
  const bool any = std::any_of(slots.begin(), slots.end(), [&](int32_t slot) {
    return slot >= 0 && parts_.lora->Changes(slot, layer);
  });
  if (!any) return std::nullopt;
  const device::AddLoraArgs rows = parts_.inputs.Adapters(keeps_logit_rows_);
  device::AddLoraArgs args = parts_.lora->ArgsOf(layer);
  args.num_tiles = rows.num_tiles;
  args.tiles = rows.tiles;
  args.rows = rows.rows;
  args.slots = rows.slots;
  args.h = At<float>(parts_.layout.lora);
  return args;
}

void DeviceDecoder::AddLora(int layer, const device::RowsOut& x, int64_t rows, void* y,
                            ElementType y_type, int64_t cols, int64_t first_row) {
  std::optional<device::AddLoraArgs> args = AdaptersOf(layer);
  if (!args) return;
  args->x = x.data;
  args->x_type = x.type;
  args->x_scales = x.scales;
  args->y = y;
  args->y_type = y_type;
  args->y_stride = cols;
  args->first_row = first_row;
  args->num_rows = rows;
  args->slots = nullptr;
  parts_.kernels.add_lora(parts_.stream->handle(), *args);
}

void DeviceDecoder::AddExpertLora(const DeviceExpertWeights& weights,
                                  const device::GroupedLinearArgs& products, int64_t first,
                                  int64_t top_k) {
  std::optional<device::AddLoraArgs> args = AdaptersOf(weights.first.lora_layer);
  if (!args) return;
  const device::LinearArgs& all = products.linear;
  args->x = all.x;
  args->x_type = all.x_type;
  args->x_scales = all.x_scales;
  args->y = all.y;
  args->y_type = all.y_type;
  args->y_stride = all.y_stride;
  args->num_tiles = all.m;
  args->slots += first;
  args->order = At<int32_t>(parts_.layout.order);
  args->chosen = At<int32_t>(parts_.layout.chosen) + first * top_k;
  args->top_k = static_cast<int>(top_k);
  parts_.kernels.add_lora(parts_.stream->handle(), *args);
}

void DeviceDecoder::AddEmbeddingLora(const Rows& rows) {
  std::optional<device::AddLoraArgs> args = AdaptersOf(parts_.weights.embedding_lora);
  if (!args) return;
  args->tokens = parts_.inputs.all_tokens();
  args->y = rows.residual;
  args->y_type = ElementType::kF32;
  args->y_stride = spec_.hidden_size;
  args->scale = spec_.embedding_scale;
  args->num_rows = rows.count;
  args->slots = nullptr;
  parts_.kernels.add_lora(parts_.stream->handle(), *args);
}

// The gate of the rows that the last product wrote to `gate_up`. Ranks gather the rows of all; in
// F32 where the whole row determines how its numbers are rounded.
device::RowsOut DeviceDecoder::GateRows(const DeviceInputs& inputs, int64_t rows, int64_t width,
                                        const ApplyGate& apply) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const device::RowsOut whole = RowsAt(layout.activated, layout.activated_scales, inputs);
  device::RowsOut own = whole;
  if (is_shared()) own.data = At(layout.own_activated);
  const bool rounds_later = is_shared() && inputs.RoundsWholeRows();
  if (rounds_later) own = {.data = At(layout.own_activated), .type = ElementType::kF32};
  apply(own);
  if (!is_shared()) return whole;
  void* const all = rounds_later ? At(layout.activated_f32) : whole.data;
  parts_.ranks->GatherRowsOf(
      *parts_.stream, width, ElementBytes(own.type),
      {.rows = rows, .own = own.data, .joined = At(layout.joined_activated), .all = all});
  if (rounds_later) {
    parts_.kernels.convert_rows(
        parts_.stream->handle(),
        {.x = all, .x_type = ElementType::kF32, .rows = rows, .cols = width, .out = whole});
  }
  return whole;
}

// activation(gate) * up
void DeviceDecoder::MultiplyGate(Activation activation, int64_t rows, int64_t width,
                                 const device::RowsOut& out) {
  parts_.kernels.silu_mul(parts_.stream->handle(), {.x = At(parts_.layout.gate_up),
                                                    .x_type = parts_.layout.wide,
                                                    .rows = rows,
                                                    .width = width,
                                                    .out = out,
                                                    .gelu = activation == Activation::kGeluTanh});
}

void DeviceDecoder::GatherHidden(int64_t rows, float* all) {
  if (!is_shared()) return;
  parts_.ranks->GatherRowsOf(
      *parts_.stream, spec_.hidden_size, sizeof(float),
      {.rows = rows, .own = OwnDelta(), .joined = At(parts_.layout.joined), .all = all});
}

void DeviceDecoder::SumHeadSquares(size_t index, int64_t rows, device::RopeAppendArgs& args) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const AttentionSpec& whole = WholeLayer(index).attention;
  const AttentionSpec& own = share_.layers[index].attention;
  DeviceStream& stream = *parts_.stream;
  // A head of k that several ranks hold is given by the first.
  const RowRange keys = FirstHeldKeys(whole, place_.tensor_rank, place_.tensor_size);
  parts_.kernels.head_squares(
      stream.handle(), {.qkv = args.qkv,
                        .qkv_type = args.qkv_type,
                        .rows = rows,
                        .row_heads = own.num_heads + 2 * own.num_kv_heads,
                        .num_heads = own.num_heads,
                        .num_kv_heads = static_cast<int>(keys.size()),
                        .head_dim = own.head_dim,
                        .q = At<float>(is_shared() ? layout.own_q_squares : layout.q_squares),
                        .k = At<float>(is_shared() ? layout.own_k_squares : layout.k_squares)});
  args.q_squares = At<float>(layout.q_squares);
  args.k_squares = At<float>(layout.k_squares);
  args.square_heads = whole.num_heads;
  args.square_kv_heads = whole.num_kv_heads;
  if (!is_shared()) return;
  const HeadCut heads = CutHeads(whole, place_.tensor_rank, place_.tensor_size);
  args.q_norm += heads.q.begin * whole.head_dim;
  args.k_norm += heads.kv.begin * whole.head_dim;
  const auto place = [&](int64_t mine, int64_t all) -> DeviceRanks::Place {
    return {.rows = rows, .own = At(mine), .joined = At(layout.joined), .all = At(all)};
  };
  parts_.ranks->GatherHeads(stream, whole, sizeof(float),
                            place(layout.own_q_squares, layout.q_squares));
  parts_.ranks->GatherKeyHeads(stream, whole, sizeof(float),
                               place(layout.own_k_squares, layout.k_squares));
}

void DeviceDecoder::ProjectAndAppend(size_t index, const device::KvArrays& cache, int64_t group,
                                     int64_t rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const AttentionSpec& spec = share_.layers[index].attention;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  Multiply(weights.qkv, Normed(weights.qkv.inputs), rows, At(layout.qkv), layout.wide);
  device::RopeAppendArgs args = {};
  args.qkv = At(layout.qkv);
  args.qkv_type = layout.wide;
  args.rows = rows;
  args.num_heads = spec.num_heads;
  args.q_norm = weights.q_norm;
  args.k_norm = weights.k_norm;
  args.norms_after_rope = spec.qk_norm == QkNorm::kAfterRopeUnweighted;
  args.eps = spec_.norm_eps;
  args.rope = spec.rope;
  args.rotary_dim = spec.rotated();
  args.interleaved = spec.rope_style == kernels::RopeStyle::kInterleaved;
  args.cos_sin = At<float>(layout.cos_sin) + 2 * FrequenciesBefore(spec_, spec.rope_table) * rows;
  args.positions = parts_.inputs.positions();
  if (spec.temperature_tuning) {
    args.temperature_floor = static_cast<float>(spec.temperature_tuning->floor_scale);
    args.temperature_scale = static_cast<float>(spec.temperature_tuning->attn_scale);
    args.temperature_first = spec.temperature_tuning->first;
  }
  args.slots = parts_.inputs.slots(group);
  args.q = At<uint16_t>(layout.q);
  args.cache = cache;
  args.kv = !spec.has_own_kv()     ? device::RowKv::kNone
            : spec.values_are_keys ? device::RowKv::kKeys
                                   : device::RowKv::kBoth;
  args.norms_values = spec.norms_values;
  if (spec.qk_norm == QkNorm::kWholeWidth) SumHeadSquares(index, rows, args);
  parts_.kernels.rope_append(parts_.stream->handle(), args);
}

void DeviceDecoder::Attend(const AttentionSpec& spec, const DeviceLayerWeights& weights,
                           const device::KvArrays& cache, int64_t group) {
  device::AttentionArgs args = parts_.inputs.Attention(spec, group);
  args.q = At<uint16_t>(parts_.layout.q);
  args.num_heads = spec.num_heads;
  args.scale = spec.softmax_scale();
  args.cache = cache;
  args.partials = At<float>(parts_.layout.partials);
  args.out = At<uint16_t>(parts_.layout.own_attended);
  args.soft_cap = spec.soft_cap;
  args.sinks = weights.sinks;
  parts_.kernels.attention(parts_.stream->handle(), args);
}

// After the last attention no row depends on another: the rest is computed for the wanted rows
// alone.
DeviceDecoder::Rows DeviceDecoder::KeepLogitRows(const AttentionSpec& spec, int64_t rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const StreamHandle handle = parts_.stream->handle();
  const auto take = [&](int64_t from, int64_t row_bytes, int64_t to, int64_t in_stride = 0) {
    parts_.kernels.take_rows(handle, {.in = At(from),
                                      .indices = parts_.inputs.logit_rows(),
                                      .rows = rows,
                                      .row_bytes = row_bytes,
                                      .out = At(to),
                                      .in_stride = in_stride});
  };
  take(layout.residual, spec_.hidden_size * 4, layout.last_residual);
  take(layout.own_attended, spec.q_width() * 2, layout.attended_last);
  if (const int64_t bytes = spec_.layer_embeddings.width * 4; bytes > 0) {
    const int64_t layers = std::ssize(spec_.layers);
    take(layout.layer_embeddings + (layers - 1) * bytes, bytes, layout.last_layer_embeddings,
         layers * bytes);
  }
  return {At<float>(layout.last_residual), rows};
}

void DeviceDecoder::ProjectOutput(const AttentionSpec& spec, const DeviceLayerWeights& weights,
                                  uint16_t* attended, int64_t rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceInputs& inputs = weights.output.inputs;
  device::RowsOut x = RowsAt(layout.attended_f8, layout.attended_scales, inputs);
  // Rows of E4M3 are others than those of BF16; those of NVFP4 take the place of the unrounded.
  if (inputs.type == ElementType::kBF16) x.data = attended;
  if (inputs.is_rounded()) {
    parts_.kernels.convert_rows(parts_.stream->handle(), {.x = attended,
                                                          .x_type = ElementType::kBF16,
                                                          .rows = rows,
                                                          .cols = spec.q_width(),
                                                          .out = x});
  }
  Multiply(weights.output, x, rows, OwnDelta(), ElementType::kF32);
}

void DeviceDecoder::Mlp(size_t index, int64_t rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  const MlpSpec& spec = share_.layers[index].mlp;
  const int64_t width = WholeLayer(index).mlp.intermediate_size;
  for (int64_t first = 0; first < rows; first += layout.mlp_rows) {
    const int64_t count = std::min(layout.mlp_rows, rows - first);
    device::RowsOut x = RowsFrom(first, Normed(weights.gate_up.inputs));
    Multiply(weights.gate_up, x, count, At(layout.gate_up), layout.wide, first);
    x = GateRows(weights.down.inputs, count, width, [&](const device::RowsOut& out) {
      MultiplyGate(spec.activation, count, spec.intermediate_size, out);
    });
    Multiply(weights.down, x, count, OwnDelta() + first * weights.down.matrix.n, ElementType::kF32,
             first);
  }
}

void DeviceDecoder::FinishLogits(const StepInput& input, float* logits) {
  auto* const on_device = At<float>(parts_.layout.logits);
  const auto copy = [&](size_t begin, size_t end) {
    const int64_t offset = static_cast<int64_t>(begin) * spec_.vocab_size;
    const int64_t count = static_cast<int64_t>(end - begin) * spec_.vocab_size;
    if (count > 0) parts_.stream->CopyToHost(logits + offset, on_device + offset, count * 4);
  };
  const size_t rows = input.logit_rows.size();
  if (input.draws.empty()) return copy(0, rows);
  device::SampleRowsArgs args = parts_.inputs.Draws();
  args.logits = on_device;
  args.cols = spec_.vocab_size;
  parts_.kernels.sample_rows(parts_.stream->handle(), args);
  parts_.inputs.ReceiveDraws(*parts_.stream);
  size_t begin = 0;  // of rows that were not drawn
  for (size_t row = 0; row <= rows; ++row) {
    if (row < rows && !input.draws[row].is_wanted) continue;
    copy(begin, row);
    begin = row + 1;
  }
}

void DeviceDecoder::Begin(const Rows& rows) {
  if (!place_.is_first_stage()) return Receive(rows, place_.stage - 1);
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const StreamHandle handle = parts_.stream->handle();
  device::EmbeddingArgs args = {.tokens = parts_.inputs.tokens(),
                                .table = parts_.weights.embedding,
                                .rows = rows.count,
                                .cols = spec_.hidden_size,
                                .out = rows.residual,
                                .scale = spec_.embedding_scale};
  if (!is_shared()) return parts_.kernels.embedding(handle, args);
  const std::span<const int64_t> embeddings = parts_.inputs.embeddings();
  args.rows = embeddings[static_cast<size_t>(place_.tensor_rank)];
  args.out = At<float>(layout.joined);
  parts_.kernels.embedding(handle, args);
  parts_.ranks->GatherEmbeddings(*parts_.stream, embeddings, args.out, At(layout.delta));
  parts_.kernels.take_rows(handle, {.in = At(layout.delta),
                                    .indices = parts_.inputs.embedding_places(),
                                    .rows = rows.count,
                                    .row_bytes = spec_.hidden_size * 4,
                                    .out = rows.residual});
}

void DeviceDecoder::FillRopeTables(int64_t rows) {
  for (int64_t table = 0; table < std::ssize(spec_.rope_tables); ++table) {
    const int64_t first = FrequenciesBefore(spec_, table);
    const auto count = std::ssize(spec_.rope_tables[static_cast<size_t>(table)]);
    parts_.kernels.rope_table(parts_.stream->handle(),
                              {.positions = parts_.inputs.positions(),
                               .frequencies = parts_.weights.rope_frequencies + first,
                               .rows = rows,
                               .rotary_dim = static_cast<int>(2 * count),
                               .cos_sin = At<float>(parts_.layout.cos_sin) + 2 * first * rows,
                               .amplitude = table == 0 ? spec_.rope_amplitude : 1});
  }
}

void DeviceDecoder::PassOn(const Rows& rows) {
  if (place_.num_stages == 1) return;
  // For the sum that is written back.
  Norm(rows, At<float>(parts_.layout.delta), /*weight=*/nullptr, DeviceInputs(), nullptr,
       parts_.weights.layers.back().residual_factor);
  parts_.ranks->group().Send(*parts_.stream, rows.residual, rows.count * spec_.hidden_size * 4,
                             RankOfStage((place_.stage + 1) % place_.num_stages));
}

void DeviceDecoder::Receive(const Rows& rows, int from_stage) {
  parts_.ranks->group().Receive(*parts_.stream, rows.residual, rows.count * spec_.hidden_size * 4,
                                RankOfStage(from_stage));
}

void DeviceDecoder::CopyHidden(const Rows& rows, float* results) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  if (place_.rank() != 0) return;  // Every rank could: nothing of it is cut.
  FinalNorm(rows, DeviceInputs(), At<float>(layout.logits));
  float* to = results;
  if (spec_.head.kind == HeadSpec::Kind::kScores) {
    Begun& begun = begun_[newest_];
    begun.results = results;
    begun.num_results = rows.count;
    to = begun.hidden.data();
  }
  parts_.stream->CopyToHost(to, At<float>(layout.logits), rows.count * spec_.hidden_size * 4);
}

void DeviceDecoder::ComputeLogits(const Rows& rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLinearWeights& head = parts_.weights.head;
  FinalNorm(rows, head.inputs, nullptr);
  void* const own = At(is_shared() ? layout.own_logits : layout.logits);
  Multiply(head, Normed(head.inputs), rows.count, own, ElementType::kF32);
  if (is_shared()) {
    parts_.ranks->GatherLogits(*parts_.stream, {.rows = rows.count,
                                                .own = own,
                                                .joined = At(layout.joined_logits),
                                                .all = At(layout.logits)});
  }
  const bool changes = spec_.logit_soft_cap != 0 || spec_.logit_scale != 1;
  if (!changes || place_.rank() != 0) return;
  parts_.kernels.cap_logits(parts_.stream->handle(), {.x = At<float>(layout.logits),
                                                      .count = rows.count * spec_.vocab_size,
                                                      .cap = spec_.logit_soft_cap,
                                                      .scale = spec_.logit_scale});
}

void DeviceDecoder::Enqueue(const StepInput& input, const KvCache& cache, float* logits) {
  if (const StepGraphs::Size* graphs = GraphsFor(input, cache); graphs != nullptr) {
    PaddedStep padded = {.rows = graphs->sequences};
    parts_.inputs.Send(*parts_.stream, input, &padded);
    parts_.stream->Replay(*graphs->graphs[static_cast<size_t>(padded.level)]);
    ++num_replayed_;
    return FinishLogits(input, logits);
  }
  parts_.inputs.Send(*parts_.stream, input);
  const Rows rows = RunLayers(std::ssize(input.tokens), std::ssize(input.logit_rows), cache);
  if (rows.count == 0) return;
  if (spec_.head.kind != HeadSpec::Kind::kVocabulary) return CopyHidden(rows, logits);
  ComputeLogits(rows);
  if (place_.rank() == 0) FinishLogits(input, logits);
}

DeviceDecoder::Rows DeviceDecoder::RunLayers(int64_t num_rows, int64_t logit_rows,
                                             const KvCache& cache) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  Rows rows = {At<float>(layout.residual), num_rows};
  float* const delta = At<float>(layout.delta);
  keeps_logit_rows_ = false;
  Begin(rows);
  if (place_.is_first_stage()) AddEmbeddingLora(rows);
  if (spec_.layer_embeddings.width > 0) EmbedInLayers(rows);
  FillRopeTables(rows.count);
  float residual_factor = 1;  // of the layer before
  for (size_t i = 0; i < share_.layers.size(); ++i) {
    const LayerSpec& layer = share_.layers[i];
    const DeviceLayerWeights& mine = parts_.weights.layers[i];
    const auto index = static_cast<int64_t>(i);
    const bool has_own_norms = layer.moe && layer.moe->own_norms;
    const int64_t group = cache.group(index);
    const device::KvArrays arrays = ArraysOf(cache.layer(index), mine);
    Norm(rows, i == 0 ? nullptr : delta, mine.attention_norm, mine.qkv.inputs, nullptr,
         residual_factor);
    residual_factor = mine.residual_factor;
    ProjectAndAppend(i, arrays, group, rows.count);
    const bool is_last = place_.is_last_stage() && i + 1 == share_.layers.size();
    if (is_last && logit_rows == 0) return {};
    Attend(layer.attention, mine, arrays, group);
    uint16_t* attended = At<uint16_t>(layout.own_attended);
    if (is_last && logit_rows < num_rows) {
      rows = KeepLogitRows(layer.attention, logit_rows);
      attended = At<uint16_t>(layout.attended_last);
      keeps_logit_rows_ = true;
    }
    if (is_shared()) {
      const AttentionSpec& whole = WholeLayer(i).attention;
      parts_.ranks->GatherHeads(*parts_.stream, whole, whole.head_dim * sizeof(BFloat16),
                                {.rows = rows.count,
                                 .own = attended,
                                 .joined = At(layout.joined),
                                 .all = At(layout.attended)});
      attended = At<uint16_t>(layout.attended);
    }
    ProjectOutput(WholeLayer(i).attention, mine, attended, rows.count);
    GatherDelta(rows.count);
    NormDelta(mine.attention_norm_after, rows.count);
    Norm(rows, delta, mine.mlp_norm, mine.gate_up.inputs,
         layer.moe && !has_own_norms ? At<float>(layout.normed_f32) : nullptr);
    if (layer.moe)
      Moe(i, rows);
    else
      Mlp(i, rows.count);
    if (!has_own_norms) {
      GatherDelta(rows.count);
      NormDelta(mine.mlp_norm_after, rows.count);
    }
    if (spec_.layer_embeddings.width > 0) AddLayerEmbedding(i, rows);
  }
  PassOn(rows);
  if (!place_.is_first_stage() || logit_rows == 0) return {};
  if (place_.num_stages > 1) {
    rows = {At<float>(layout.last_residual), logit_rows};
    Receive(rows, place_.num_stages - 1);
    keeps_logit_rows_ = true;
  }
  return rows;
}

void DeviceDecoder::Begin(ThreadPool& /*threads*/, const StepInput& input, KvCache& cache,
                          float* logits) {
  CheckStepInput(spec_, options_, input, cache, takes_drawn_tokens());
  CHECK_LT(num_in_flight_, steps_in_flight());
  const size_t index = (first_begun_ + static_cast<size_t>(num_in_flight_)) % begun_.size();
  Begun& begun = begun_[index];
  begun.draws = {};
  begun.end = parts_.events[index].get();
  begun.failure.clear();
  begun.num_results = 0;
  newest_ = index;
  begun.slots.assign(input.adapters.begin(), input.adapters.end());
  std::sort(begun.slots.begin(), begun.slots.end());
  begun.slots.erase(std::unique(begun.slots.begin(), begun.slots.end()), begun.slots.end());
  if (parts_.lora != nullptr) parts_.lora->BeginUse(begun.slots);
  try {
    if (!input.tokens.empty()) Enqueue(input, cache, logits);
    parts_.stream->Record(*begun.end);
  } catch (const std::exception& error) {
    // What was enqueued reads the inputs and writes the logits, which the caller takes for free.
    if (parts_.ranks != nullptr) parts_.ranks->group().Abort();
    static_cast<void>(parts_.stream->Synchronize());
    FailInFlight(error.what());
    EndUse(begun);
    throw;
  }
  if (place_.rank() == 0 && !input.tokens.empty()) begun.draws = input.draws;
  begun.buffer = parts_.inputs.buffer();
  ++num_in_flight_;
}

void DeviceDecoder::Finish(ThreadPool& threads) {
  CHECK_GT(num_in_flight_, 0);
  const Begun& begun = begun_[first_begun_];
  struct End {
    DeviceDecoder& decoder;
    const Begun& begun;
    ~End() { decoder.EndUse(begun); }
  };
  const End end{*this, begun};
  first_begun_ = (first_begun_ + 1) % begun_.size();
  --num_in_flight_;
  if (!begun.failure.empty()) throw std::runtime_error(begun.failure);
  if (parts_.ranks != nullptr) {
    parts_.ranks->group().Wait(*parts_.stream);
  } else if (const Status status = parts_.stream->SynchronizeUntil(*begun.end); !status) {
    static_cast<void>(parts_.stream->Synchronize());
    FailInFlight(status.error().message);
    throw std::runtime_error(status.error().message);
  }
  parts_.inputs.ReadDraws(begun.buffer, begun.draws);
  if (begun.num_results > 0) {
    ScoreRows(threads, spec_, parts_.scores, begun.hidden.data(), begun.num_results, begun.results);
  }
}

void DeviceDecoder::EndUse(const Begun& begun) {
  if (parts_.lora != nullptr) parts_.lora->EndUse(begun.slots);
}

// Those in flight may be what has failed, or have been computed from it.
void DeviceDecoder::FailInFlight(const std::string& reason) {
  for (int i = 0; i < num_in_flight_; ++i)
    begun_[(first_begun_ + static_cast<size_t>(i)) % begun_.size()].failure = reason;
}

}  // namespace sluice
