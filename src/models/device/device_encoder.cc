#include "models/device/device_encoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "base/check.h"
#include "base/log.h"
#include "device/array_cutter.h"
#include "kernels/cuda/linear_plan.h"
#include "models/encoder/encoder_classifier.h"
#include "models/step_check.h"

namespace sluice {
namespace {

// The MLP's intermediates are the widest arrays. Going through in parts bounds them.
constexpr int64_t kMostMlpRows = 2048;

}  // namespace

EncoderWorkspace::EncoderWorkspace(const EncoderSpec& spec, const ModelOptions& options,
                                   int64_t scratch_bytes, bool keeps_apart) {
  ArrayCutter cutter(keeps_apart);
  const auto take = [&](int64_t bytes) { return cutter.Take(bytes); };
  const int64_t rows = options.max_rows, hidden = spec.hidden_size;
  const int64_t wanted = std::min(options.max_logit_rows, rows);
  residual = take(rows * hidden * 4);
  delta = take(rows * hidden * 4);
  inputs = take(rows * hidden * 2);
  qkv = take(rows * 3 * hidden * 2);
  q = take(rows * hidden * 2);
  attended = take(rows * hidden * 2);
  wanted_residual = take(wanted * hidden * 4);
  wanted_attended = take(wanted * hidden * 2);
  if (!spec.rope_frequencies.empty()) cos_sin = take(rows * spec.head_dim() * 4);
  if (!spec.window_frequencies.empty()) window_cos_sin = take(rows * spec.head_dim() * 4);
  mlp_rows = std::min(rows, kMostMlpRows);
  inner = take(mlp_rows * spec.intermediate_size * (spec.is_gated() ? 4 : 2));
  activated = take(mlp_rows * spec.intermediate_size * 2);
  step_inputs = take(DeviceEncoderStep::MaxBytes(spec, options));
  linear_scratch = take(scratch_bytes);
  linear_counters = take(device::kLinearCounterBytes);
  total_bytes = cutter.total_bytes();
  gaps = cutter.gaps();
}

DeviceEncoder::DeviceEncoder(ModelConfig config, const ModelOptions& options,
                             const EncoderSpec& spec, Parts parts)
    : Model(std::move(config)), options_(options), spec_(spec), parts_(std::move(parts)) {
  parts_.stream->Fill(At(parts_.layout.linear_counters), 0, device::kLinearCounterBytes);
  if (!classifies()) return;
  const int64_t rows =
      TakesMeans() ? options.max_rows : std::min(options.max_logit_rows, options.max_rows);
  hidden_.resize(static_cast<size_t>(rows * spec.hidden_size));
  scratch_.resize(hidden_.size());
}

DeviceEncoder::~DeviceEncoder() {
  // Nothing may run any more when the memory goes; what failed was told by the step that failed.
  static_cast<void>(parts_.stream->Synchronize());
  if (pinned_results_ != nullptr) parts_.device.Unpin(pinned_results_);
}

void DeviceEncoder::PrepareLogits(std::span<float> results) {
  if (pinned_results_ != nullptr) parts_.device.Unpin(pinned_results_);
  pinned_results_ = nullptr;
  if (results.empty() || classifies()) return;
  if (parts_.device.Pin(results.data(), static_cast<int64_t>(results.size_bytes())))
    pinned_results_ = results.data();
}

void DeviceEncoder::Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
                            float* results) {
  CheckStepInput(config_.spec, options_, input, cache);
  if (input.tokens.empty()) return;
  parts_.inputs.Send(*parts_.stream, input);
  const Rows rows = RunLayers(input, cache);
  parts_.stream->CopyToHost(classifies() ? hidden_.data() : results, rows.residual,
                            rows.count * spec_.hidden_size * 4);
  if (const Status status = parts_.stream->Synchronize(); !status)
    throw std::runtime_error(status.error().message);
  if (!classifies()) return;
  if (TakesMeans()) TakeTextMeans(threads, input, spec_.hidden_size, hidden_.data());
  ScoreTexts(threads, parts_.classifier, spec_.norm_eps, hidden_.data(),
             std::ssize(input.logit_rows), spec_.hidden_size, scratch_.data(), results);
}

DeviceEncoder::Rows DeviceEncoder::RunLayers(const StepInput& input, const KvCache& cache) {
  const EncoderWorkspace& layout = parts_.layout;
  Rows rows = {At<float>(layout.residual), At<uint16_t>(layout.attended), std::ssize(input.tokens)};
  Embed(rows.count);
  Norm(parts_.weights.embedding_norm, rows, nullptr, /*keeps_norm=*/true);
  const auto* const delta = At<float>(layout.delta);
  for (size_t i = 0; i < parts_.weights.layers.size(); ++i) {
    const Layer& layer = parts_.weights.layers[i];
    // What the first layer reads is normed by the embedding.
    if (i > 0 && spec_.norms_before) Norm(layer.attention_norm, rows, delta, /*keeps_norm=*/false);
    // All layers use the cache of one, each after the other.
    Attend(layer, !spec_.has_window.empty() && spec_.has_window[i], cache.layer(0), rows);
    if (i + 1 == parts_.weights.layers.size() && !TakesMeans())
      rows = KeepWantedRows(rows, std::ssize(input.logit_rows));
    RunLayerEnd(layer, rows);
  }
  if (spec_.norms_before) Norm(parts_.weights.final_norm, rows, delta, /*keeps_norm=*/true);
  return rows;
}

// Words, positions and types together.
void DeviceEncoder::Embed(int64_t rows) {
  const StreamHandle handle = parts_.stream->handle();
  const DeviceEncoderWeights& weights = parts_.weights;
  auto* const residual = At<float>(parts_.layout.residual);
  parts_.kernels.embedding(handle, {.tokens = parts_.inputs.tokens(),
                                    .table = weights.words,
                                    .rows = rows,
                                    .cols = spec_.hidden_size,
                                    .out = residual});
  if (weights.positions != nullptr || weights.types != nullptr) {
    parts_.kernels.add_embeddings(handle,
                                  {.out = residual,
                                   .rows = rows,
                                   .cols = spec_.hidden_size,
                                   .position_table = weights.positions,
                                   .positions = parts_.inputs.positions(),
                                   .first_position = static_cast<int32_t>(spec_.first_position),
                                   .type_table = weights.types,
                                   .types = parts_.inputs.types()});
  }
  FillRopeTable(weights.rope_frequencies, rows, parts_.layout.cos_sin);
  FillRopeTable(weights.window_frequencies, rows, parts_.layout.window_cos_sin);
}

void DeviceEncoder::FillRopeTable(const float* frequencies, int64_t rows, int64_t cos_sin) {
  if (frequencies == nullptr) return;
  parts_.kernels.rope_table(parts_.stream->handle(),
                            {.positions = parts_.inputs.positions(),
                             .frequencies = frequencies,
                             .rows = rows,
                             .rotary_dim = static_cast<int>(spec_.head_dim()),
                             .cos_sin = At<float>(cos_sin)});
}

void DeviceEncoder::Norm(const DeviceLayerNorm& norm, const Rows& rows, const float* delta,
                         bool keeps_norm) {
  parts_.kernels.layer_norm(parts_.stream->handle(), {.residual = rows.residual,
                                                      .delta = delta,
                                                      .weight = norm.weight,
                                                      .bias = norm.bias,
                                                      .eps = spec_.norm_eps,
                                                      .rows = rows.count,
                                                      .cols = spec_.hidden_size,
                                                      .keeps_norm = keeps_norm,
                                                      .out = At<uint16_t>(parts_.layout.inputs)});
}

device::LinearArgs DeviceEncoder::ProductOf(const DeviceLinearWeights& weights, const void* x,
                                            int64_t rows, void* y, ElementType y_type) const {
  return {.w = weights.matrix,
          .x = x,
          .x_type = ElementType::kBF16,
          .x_scales = nullptr,
          .m = rows,
          .y = y,
          .y_type = y_type,
          .y_stride = weights.matrix.n,
          .bias = weights.bias,
          .scratch = At(parts_.layout.linear_scratch),
          .counters = At<uint32_t>(parts_.layout.linear_counters)};
}

void DeviceEncoder::Attend(const Layer& layer, bool has_window, const kernels::KvCacheView& cache,
                           const Rows& rows) {
  const EncoderWorkspace& layout = parts_.layout;
  const StreamHandle handle = parts_.stream->handle();
  const auto num_heads = static_cast<int>(spec_.num_heads);
  const bool is_f8 = cache.layout.type == ElementType::kF8E4M3;
  const device::KvArrays arrays = {.k = cache.k,
                                   .v = cache.v,
                                   .type = is_f8 ? ElementType::kF8E4M3 : ElementType::kBF16,
                                   .k_scale = 1,
                                   .v_scale = 1,
                                   .num_kv_heads = cache.layout.num_kv_heads,
                                   .head_dim = cache.layout.head_dim,
                                   .block_size = cache.layout.block_size};
  Multiply(layer.qkv, At(layout.inputs), rows.count, At(layout.qkv), ElementType::kBF16);
  device::RopeAppendArgs append = {};
  append.qkv = At(layout.qkv);
  append.qkv_type = ElementType::kBF16;
  append.rows = rows.count;
  append.num_heads = num_heads;
  append.rope = !spec_.rope_frequencies.empty();
  append.cos_sin = At<float>(has_window ? layout.window_cos_sin : layout.cos_sin);
  append.positions = parts_.inputs.positions();
  append.slots = parts_.inputs.slots();
  append.q = At<uint16_t>(layout.q);
  append.cache = arrays;
  parts_.kernels.rope_append(handle, append);
  device::AttentionArgs attention = parts_.inputs.Attention(has_window);
  attention.q = At<uint16_t>(layout.q);
  attention.num_heads = num_heads;
  attention.scale = 1 / std::sqrt(static_cast<float>(spec_.head_dim()));
  attention.cache = arrays;
  attention.out = rows.attended;
  parts_.kernels.attention(handle, attention);
}

DeviceEncoder::Rows DeviceEncoder::KeepWantedRows(const Rows& rows, int64_t wanted) {
  if (wanted == rows.count) return rows;
  const Rows kept = {At<float>(parts_.layout.wanted_residual),
                     At<uint16_t>(parts_.layout.wanted_attended), wanted};
  const auto take = [&](const void* from, int64_t number_bytes, void* to) {
    parts_.kernels.take_rows(parts_.stream->handle(),
                             {.in = from,
                              .indices = parts_.inputs.logit_rows(),
                              .rows = wanted,
                              .row_bytes = spec_.hidden_size * number_bytes,
                              .out = to});
  };
  take(rows.residual, 4, kept.residual);
  take(rows.attended, 2, kept.attended);
  return kept;
}

void DeviceEncoder::RunLayerEnd(const Layer& layer, const Rows& rows) {
  const EncoderWorkspace& layout = parts_.layout;
  const bool before = spec_.norms_before;
  auto* const delta = At<float>(layout.delta);
  Multiply(layer.output, rows.attended, rows.count, delta, ElementType::kF32);
  Norm(before ? layer.mlp_norm : layer.attention_norm, rows, delta, /*keeps_norm=*/!before);
  for (int64_t first = 0; first < rows.count; first += layout.mlp_rows) {
    const int64_t count = std::min(layout.mlp_rows, rows.count - first);
    const int64_t begin = first * spec_.hidden_size;
    Multiply(layer.up, At<uint16_t>(layout.inputs) + begin, count, At(layout.inner),
             ElementType::kBF16);
    Activate(count);
    Multiply(layer.down, At(layout.activated), count, delta + begin, ElementType::kF32);
  }
  if (!before) Norm(layer.mlp_norm, rows, delta, /*keeps_norm=*/true);
}

void DeviceEncoder::Activate(int64_t rows) {
  using Activation = EncoderSpec::Activation;
  const StreamHandle handle = parts_.stream->handle();
  if (spec_.activation == Activation::kGatedSilu) {
    return parts_.kernels.silu_mul(handle, {.x = At(parts_.layout.inner),
                                            .x_type = ElementType::kBF16,
                                            .rows = rows,
                                            .width = spec_.intermediate_size,
                                            .out = {.data = At(parts_.layout.activated)}});
  }
  parts_.kernels.activate(handle, {.x = At<uint16_t>(parts_.layout.inner),
                                   .rows = rows,
                                   .width = spec_.intermediate_size,
                                   .gated = spec_.is_gated(),
                                   .relu = spec_.activation == Activation::kRelu,
                                   .out = At<uint16_t>(parts_.layout.activated)});
}

Status DeviceEncoder::Tune() {
  if (parts_.linear->TuningRows(options_.max_rows).empty()) return {};
  LOG_INFO("models",
           "choosing between own kernels and the algorithms of {}: what no earlier start measured "
           "is measured now",
           parts_.linear->library());
  const auto begin = std::chrono::steady_clock::now();
  const EncoderWorkspace& layout = parts_.layout;
  // What the arrays hold does not matter. The weights of the layers take turns.
  const auto tune = [&](DeviceLinearWeights Layer::*member, int64_t x, int64_t most, int64_t y,
                        ElementType y_type) -> Status {
    for (const int64_t rows : parts_.linear->TuningRows(most)) {
      std::vector<device::LinearArgs> products;
      for (const Layer& layer : parts_.weights.layers)
        products.push_back(ProductOf(layer.*member, At(x), rows, At(y), y_type));
      const std::span<const device::LinearArgs> all = products;
      for (size_t i = 0; i < all.size(); ++i)
        RETURN_IF_ERROR(parts_.linear->Tune(*parts_.stream, all.subspan(i)));
    }
    return {};
  };
  const int64_t most = options_.max_rows;
  RETURN_IF_ERROR(tune(&Layer::qkv, layout.inputs, most, layout.qkv, ElementType::kBF16));
  RETURN_IF_ERROR(tune(&Layer::output, layout.attended, most, layout.delta, ElementType::kF32));
  RETURN_IF_ERROR(
      tune(&Layer::up, layout.inputs, layout.mlp_rows, layout.inner, ElementType::kBF16));
  RETURN_IF_ERROR(
      tune(&Layer::down, layout.activated, layout.mlp_rows, layout.delta, ElementType::kF32));
  RETURN_IF_ERROR(parts_.stream->Synchronize());
  parts_.linear->SaveTactics();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  LOG_INFO("models", "the kernels are chosen after {:.1f} s", seconds.count());
  return {};
}

}  // namespace sluice
