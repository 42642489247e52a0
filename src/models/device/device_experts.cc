// The experts of a decoder on a device.
#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/expert_products.h"
#include "models/device/device_decoder.h"

namespace sluice {

device::GroupedLinearArgs DeviceDecoder::ExpertProducts(const DeviceExpertWeights& weights,
                                                        int64_t num_experts,
                                                        const device::RowsOut& x, int64_t pairs,
                                                        void* y, ElementType y_type) const {
  const device::Weights& first = weights.first.matrix;
  return {.linear = {.w = first,
                     .x = x.data,
                     .x_type = x.type,
                     .x_scales = x.scales,
                     .m = pairs,
                     .y = y,
                     .y_type = y_type,
                     .y_stride = first.n,
                     .bias = nullptr,
                     .scratch = At(parts_.layout.linear_scratch),
                     .same_x_scale = 0,
                     .counters = At<uint32_t>(parts_.layout.linear_counters)},
          .num_experts = num_experts,
          .codes_stride = weights.codes_stride,
          .group_scales_stride = weights.group_scales_stride,
          .row_scales_stride = weights.row_scales_stride,
          .row_begin = At<int32_t>(parts_.layout.row_begin)};
}

void DeviceDecoder::MultiplyExperts(const device::GroupedLinearArgs& products,
                                    std::span<const int32_t> row_begin) {
  if (!row_begin.empty())
    device::RunExperts(*parts_.linear, *parts_.stream, products, row_begin);
  else
    parts_.kernels.grouped_linear(parts_.stream->handle(), products);
}

std::span<const int32_t> DeviceDecoder::ReceiveExpertRows(int64_t num_experts) {
  if (is_recording_)
    throw std::runtime_error("the host reads how many rows each expert has, in steps this large");
  const int64_t count = num_experts + 1;
  parts_.stream->CopyToHost(parts_.expert_rows.data(), At(parts_.layout.row_begin), count * 4);
  if (const Status status = parts_.stream->Synchronize(); !status)
    throw std::runtime_error(status.error().message);
  return {parts_.expert_rows.As<int32_t>(), static_cast<size_t>(count)};
}

Status DeviceDecoder::TuneExperts(const DeviceExpertWeights& weights, int64_t num_experts,
                                  const device::RowsOut& x, void* y, ElementType y_type) {
  const device::GroupedLinearArgs all =
      ExpertProducts(weights, num_experts, x, parts_.layout.moe_pairs, y, y_type);
  for (const int64_t rows : parts_.linear->TuningRows(parts_.layout.moe_pairs)) {
    if (rows < device::kManyExpertRows) continue;
    std::vector<device::LinearArgs> experts;
    for (int64_t e = 0; e < std::min(num_experts, device::DeviceLinear::kMostRotatedLayers); ++e)
      experts.push_back(device::ExpertProduct(all, e, 0, rows));
    RETURN_IF_ERROR(parts_.linear->Tune(*parts_.stream, experts));
  }
  return {};
}

// From inputs in F32: a choice between two experts that are nearly as good should not hang on their
// rounding.
void DeviceDecoder::Route(size_t index, int64_t rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  const MoeSpec& spec = *share_.layers[index].moe;
  device::RouterArgs args = {.x = At<float>(layout.normed_f32),
                             .weight = weights.router,
                             .rows = rows,
                             .k = spec_.hidden_size,
                             .num_experts = spec.num_experts,
                             .top_k = static_cast<int>(spec.top_k),
                             .sigmoid = spec.score == kernels::RouterScore::kSigmoid,
                             .normalize = spec.normalize,
                             .logits = At<float>(layout.router_logits),
                             .chosen = At<int32_t>(layout.chosen),
                             .expert_weights = At<float>(layout.expert_weights),
                             .expert_factors = weights.expert_factors,
                             .bias = weights.router_bias,
                             .choice_bias = weights.choice_bias,
                             .scale = spec.weight_scale};
  if (AdaptersOf(weights.router_lora)) {
    // Between the logits and the choice.
    device::RouterArgs logits = args;
    logits.top_k = 0;
    parts_.kernels.router(parts_.stream->handle(), logits);
    AddRouterLogits(weights.router_lora, rows, spec.num_experts, args.logits);
    args.weight = nullptr;
  }
  parts_.kernels.router(parts_.stream->handle(), args);
}

void DeviceDecoder::ComputeSharedGates(size_t index, int64_t rows) {
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  device::RouterArgs args = {};
  args.x = At<float>(parts_.layout.normed_f32);
  args.weight = weights.shared_gate;
  args.rows = rows;
  args.k = spec_.hidden_size;
  args.num_experts = 1;
  args.logits = At<float>(parts_.layout.shared_gates);
  parts_.kernels.router(parts_.stream->handle(), args);
  AddRouterLogits(weights.shared_gate_lora, rows, 1, args.logits);
}

void DeviceDecoder::AddRouterLogits(int lora_layer, int64_t rows, int64_t count, float* logits) {
  const device::RowsOut x = {.data = At(parts_.layout.normed_f32), .type = ElementType::kF32};
  AddLora(lora_layer, x, rows, logits, ElementType::kF32, count, /*first_row=*/0);
}

void DeviceDecoder::ApplyExpertGate(const MoeSpec& spec, const DeviceExpertWeights& gate_up,
                                    const int32_t* chosen, int64_t pairs,
                                    const device::RowsOut& out) {
  if (spec.activation != Activation::kClampedSwiglu)
    return MultiplyGate(spec.activation, pairs, spec.intermediate_size, out);
  parts_.kernels.clamped_swiglu(parts_.stream->handle(), {.x = At<float>(parts_.layout.gate_up),
                                                          .rows = pairs,
                                                          .width = spec.intermediate_size,
                                                          .alpha = spec.clamp.alpha,
                                                          .limit = spec.clamp.limit,
                                                          .bias = gate_up.first.bias,
                                                          .order = At<int32_t>(parts_.layout.order),
                                                          .chosen = chosen,
                                                          .out = out});
}

// The router, the MLP that sees every token, and the chosen experts.
void DeviceDecoder::Moe(size_t index, const Rows& rows) {
  const LayerSpec& layer = share_.layers[index];
  if (layer.moe->own_norms) return MoeWithOwnNorms(index, rows);
  Route(index, rows.count);
  const bool has_shared = layer.mlp.intermediate_size > 0;
  if (has_shared) Mlp(index, rows.count);
  if (parts_.weights.layers[index].shared_gate != nullptr) ComputeSharedGates(index, rows.count);
  RunAllChosen(index, rows.count, has_shared, OwnDelta());
}

void DeviceDecoder::MoeWithOwnNorms(size_t index, const Rows& rows) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  float* const delta = At<float>(layout.delta);
  float* const expert_delta = At<float>(layout.expert_delta);
  float* const normed = At<float>(layout.normed_f32);
  Mlp(index, rows.count);
  GatherDelta(rows.count);
  NormDelta(weights.mlp_after, rows.count);
  Norm(rows, nullptr, weights.router_norm, DeviceInputs(), normed);
  Route(index, rows.count);
  Norm(rows, nullptr, weights.experts_before, DeviceInputs(), normed);
  RunAllChosen(index, rows.count, /*add=*/false, is_shared() ? OwnDelta() : expert_delta);
  GatherHidden(rows.count, expert_delta);
  NormRows(expert_delta, nullptr, weights.experts_after, rows.count);
  NormRows(delta, expert_delta, weights.mlp_norm_after, rows.count);
}

void DeviceDecoder::RunAllChosen(size_t index, int64_t rows, bool add, float* sum) {
  const int64_t most = parts_.layout.moe_pairs / share_.layers[index].moe->top_k;
  for (int64_t first = 0; first < rows; first += most)
    RunChosen(index, first, std::min(most, rows - first), add, sum);
}

// Of rows [first, first + count).
void DeviceDecoder::RunChosen(size_t index, int64_t first, int64_t count, bool add, float* sum) {
  const DeviceWorkspaceLayout& layout = parts_.layout;
  const DeviceLayerWeights& weights = parts_.weights.layers[index];
  const MoeSpec& spec = *share_.layers[index].moe;
  const StreamHandle handle = parts_.stream->handle();
  const int64_t hidden = spec_.hidden_size, pairs = count * spec.top_k;
  const int64_t own_hidden = weights.expert_down.first.matrix.n;
  const auto top_k = static_cast<int>(spec.top_k);
  const float* expert_weights = At<float>(layout.expert_weights) + first * spec.top_k;
  const int32_t* chosen = At<int32_t>(layout.chosen) + first * spec.top_k;
  parts_.kernels.group_by_expert(handle, {.chosen = chosen,
                                          .rows = count,
                                          .top_k = top_k,
                                          .num_experts = spec.num_experts,
                                          .order = At<int32_t>(layout.order),
                                          .place = At<int32_t>(layout.place),
                                          .row_begin = At<int32_t>(layout.row_begin)});
  device::RowsOut x =
      RowsAt(layout.gathered, layout.gathered_scales, weights.expert_gate_up.first.inputs);
  parts_.kernels.gather_rows(handle, {.x = At<float>(layout.normed_f32) + first * hidden,
                                      .order = At<int32_t>(layout.order),
                                      .pairs = pairs,
                                      .cols = hidden,
                                      .top_k = top_k,
                                      .weights = spec.scale_inputs ? expert_weights : nullptr,
                                      .out = x});
  device::GroupedLinearArgs products = ExpertProducts(weights.expert_gate_up, spec.num_experts, x,
                                                      pairs, At(layout.gate_up), layout.wide);
  // Ranks would each wait for the others here.
  std::span<const int32_t> row_begin;
  if (parts_.ranks == nullptr && device::IsWorthTakingApart(*parts_.linear, products))
    row_begin = ReceiveExpertRows(spec.num_experts);
  MultiplyExperts(products, row_begin);
  AddExpertLora(weights.expert_gate_up, products, first, spec.top_k);
  x = GateRows(weights.expert_down.first.inputs, pairs, WholeLayer(index).moe->intermediate_size,
               [&](const device::RowsOut& out) {
                 ApplyExpertGate(spec, weights.expert_gate_up, chosen, pairs, out);
               });
  products = ExpertProducts(weights.expert_down, spec.num_experts, x, pairs,
                            At(layout.expert_results), ElementType::kF32);
  if (!row_begin.empty() && !device::IsWorthTakingApart(*parts_.linear, products)) row_begin = {};
  MultiplyExperts(products, row_begin);
  AddExpertLora(weights.expert_down, products, first, spec.top_k);
  // What is added to is the gated MLP's result.
  const bool has_gate = weights.shared_gate != nullptr;
  parts_.kernels.combine_experts(
      handle, {.y = At(layout.expert_results),
               .y_type = ElementType::kF32,
               .place = At<int32_t>(layout.place),
               .weights = spec.scale_inputs ? nullptr : expert_weights,
               .rows = count,
               .cols = own_hidden,
               .top_k = top_k,
               .add = add,
               .sum = sum + first * own_hidden,
               .sum_gates = has_gate ? At<float>(layout.shared_gates) + first : nullptr,
               .bias = weights.expert_down.first.bias,
               .chosen = chosen});
}

}  // namespace sluice
