// Runs and tunes the products of a program on a device, including experts and adapters.
#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/expert_products.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/linear_shapes.h"
#include "models/device/device_walk.h"

namespace sluice {

using program::kNone;

device::RowsOut DeviceWalk::InputsOf(const program::Project& op) const {
  if (op.linear == kNone || op.is_plain)
    return RowsOutAt(op.x, op.device.scales, op.k, DeviceInputs());
  const DeviceInputs& inputs = Linear(op.linear).inputs;
  const bool is_narrow = op.device.narrow != kNone && inputs.type != ElementType::kBF16;
  return RowsOutAt(is_narrow ? op.device.narrow : op.x, op.device.scales, op.k, inputs);
}

device::LinearArgs DeviceWalk::ProductOf(const program::Project& op, int64_t rows) const {
  const device::RowsOut x = InputsOf(op);
  const bool is_table = op.linear == kNone;
  return {.w = is_table ? weights_.tables[static_cast<size_t>(op.table)] : Linear(op.linear).matrix,
          .x = x.data,
          .x_type = x.type,
          .x_scales = x.scales,
          .m = rows,
          .y = At(op.y, op.y_stride * DeviceElementBytes(op.y_type)),
          .y_type = op.y_type,
          .y_stride = op.y_stride,
          .bias = is_table ? nullptr : Linear(op.linear).bias,
          .scratch = At(op.device.scratch, 0),
          .same_x_scale = x.row_scale == device::RowScale::kPerToken ? 0 : x.static_scale,
          .counters = RowsAt<uint32_t>(op.device.counters, 0),
          .x_is_mxf4 = x.row_scale == device::RowScale::kMxF4};
}

void DeviceWalk::operator()(const program::Project& op) {
  const int64_t rows = CountOf(op.y);
  device::LinearArgs product = ProductOf(op, rows);
  const device::RowsOut x = InputsOf(op);
  const int32_t* const order = op.linear == kNone ? nullptr : Linear(op.linear).input_order;
  if (order != nullptr) {
    CHECK(x.type == ElementType::kBF16);
    auto* const ordered = RowsAt<uint16_t>(op.device.ordered, 0);
    kernels_.take_columns(handle_, {.in = static_cast<const uint16_t*>(x.data),
                                    .indices = order,
                                    .rows = rows,
                                    .cols = op.k,
                                    .out = ordered});
    product.x = ordered;
  }
  const auto packed_by = executor_.packed_by_.find(&op);
  const bool is_packed = packed_by != executor_.packed_by_.end() &&
                         packed_by->second == packed_.by && packed_.rows == product.x &&
                         packed_.count == rows;
  parts_.linear.Run(parts_.stream, product, is_packed ? packed_.at : device::PackedRows());
  AddLora(op.lora, op.device.lora, x, rows, product.y, op.y_type, op.n);
}

std::optional<device::AddLoraArgs> DeviceWalk::AdaptersOf(int32_t layer, BufferId scratch) const {
  if (layer < 0 || !step_.inputs->has_adapters()) return std::nullopt;
  const bool any = std::ranges::any_of(
      step_.adapters, [&](int32_t slot) { return slot >= 0 && parts_.lora->Changes(slot, layer); });
  if (!any) return std::nullopt;
  const device::AddLoraArgs rows = step_.inputs->Adapters(are_wanted_);
  device::AddLoraArgs args = parts_.lora->ArgsOf(layer);
  args.num_tiles = rows.num_tiles;
  args.tiles = rows.tiles;
  args.rows = rows.rows;
  args.slots = rows.slots;
  args.h = reinterpret_cast<float*>(
      scratch == kNone ? nullptr : executor_.addresses_[static_cast<size_t>(scratch)]);
  return args;
}

void DeviceWalk::AddLora(int32_t layer, BufferId scratch, const device::RowsOut& x, int64_t rows,
                         void* y, ElementType y_type, int64_t cols) const {
  std::optional<device::AddLoraArgs> args = AdaptersOf(layer, scratch);
  if (!args) return;
  args->x = x.data;
  args->x_type = x.type;
  args->x_scales = x.scales;
  args->y = y;
  args->y_type = y_type;
  args->y_stride = cols;
  args->first_row = first_;
  args->num_rows = rows;
  args->slots = nullptr;
  kernels_.add_lora(handle_, *args);
}

void DeviceWalk::operator()(const program::Route& op) {
  const MoeSpec& spec = Moe(op.moe);
  const DeviceLinearWeights& router = Linear(op.router);
  device::RouterArgs args = {.x = RowsAt<float>(op.x, op.width),
                             .weight = static_cast<const uint16_t*>(router.matrix.codes),
                             .rows = rows_,
                             .k = op.width,
                             .num_experts = spec.num_experts,
                             .top_k = static_cast<int>(spec.top_k),
                             .sigmoid = spec.score == kernels::RouterScore::kSigmoid,
                             .normalize = spec.normalize,
                             .logits = RowsAt<float>(op.logits, spec.num_experts),
                             .chosen = RowsAt<int32_t>(op.chosen, spec.top_k),
                             .expert_weights = RowsAt<float>(op.weights, spec.top_k),
                             .expert_factors = Vector(op.factors),
                             .bias = router.bias,
                             .choice_bias = Vector(op.choice_bias),
                             .scale = spec.weight_scale,
                             .num_groups = spec.num_groups,
                             .kept_groups = spec.kept_groups,
                             .group_best = spec.group_best,
                             .chooses_by_logits = spec.chooses_by_logits};
  if (AdaptersOf(op.lora, op.lora_scratch)) {
    // Adapters' results are added after the logits are computed and before experts are chosen.
    device::RouterArgs logits = args;
    logits.top_k = 0;
    kernels_.router(handle_, logits);
    AddLora(op.lora, op.lora_scratch, {.data = At(op.x, 0), .type = ElementType::kF32}, rows_,
            args.logits, ElementType::kF32, spec.num_experts);
    args.weight = nullptr;
  }
  kernels_.router(handle_, args);
}

void DeviceWalk::operator()(const program::GateShared& op) {
  device::RouterArgs args = {};
  args.x = RowsAt<float>(op.x, op.width);
  args.weight = static_cast<const uint16_t*>(Linear(op.gate).matrix.codes);
  args.rows = rows_;
  args.k = op.width;
  args.num_experts = 1;
  args.logits = RowsAt<float>(op.gates, 1);
  kernels_.router(handle_, args);
  AddLora(op.lora, op.lora_scratch, {.data = At(op.x, 0), .type = ElementType::kF32}, rows_,
          args.logits, ElementType::kF32, 1);
}

void DeviceWalk::operator()(const program::GroupExperts& op) {
  const MoeSpec& spec = Moe(op.moe);
  const auto top_k = static_cast<int>(spec.top_k);
  kernels_.group_by_expert(handle_, {.chosen = RowsAt<int32_t>(op.chosen, top_k),
                                     .rows = CountOf(op.x),
                                     .top_k = top_k,
                                     .num_experts = spec.num_experts,
                                     .order = RowsAt<int32_t>(op.order, 0),
                                     .place = RowsAt<int32_t>(op.place, 0),
                                     .row_begin = RowsAt<int32_t>(op.row_begin, 0)});
  kernels_.gather_rows(handle_,
                       {.x = RowsAt<float>(op.x, op.width),
                        .order = RowsAt<int32_t>(op.order, 0),
                        .pairs = CountOf(op.out),
                        .cols = op.width,
                        .top_k = top_k,
                        .weights = spec.scale_inputs ? RowsAt<float>(op.weights, top_k) : nullptr,
                        .out = RowsOutAt(op.out, op.scales, 0, weights_.InputsOf(op.reader))});
  has_looked_ = false;
  row_begin_ = {};
}

device::GroupedLinearArgs DeviceWalk::ExpertProducts(const program::ProjectExperts& op,
                                                     int64_t pairs) const {
  const DeviceExpertWeights& experts = Experts(op.experts);
  const device::Weights& first = experts.first.matrix;
  const device::RowsOut x = RowsOutAt(op.x, op.device.scales, 0, experts.first.inputs);
  return {.linear = {.w = first,
                     .x = x.data,
                     .x_type = x.type,
                     .x_scales = x.scales,
                     .m = pairs,
                     .y = At(op.y, 0),
                     .y_type = op.y_type,
                     .y_stride = first.n,
                     .bias = nullptr,
                     .scratch = At(op.device.scratch, 0),
                     .same_x_scale = 0,
                     .counters = RowsAt<uint32_t>(op.device.counters, 0),
                     .x_is_mxf4 = x.row_scale == device::RowScale::kMxF4},
          .num_experts = Moe(op.moe).num_experts,
          .codes_stride = experts.codes_stride,
          .group_scales_stride = experts.group_scales_stride,
          .row_scales_stride = experts.row_scales_stride,
          .row_begin = RowsAt<int32_t>(op.row_begin, 0)};
}

std::span<const int32_t> DeviceWalk::ReceiveExpertRows(BufferId row_begin,
                                                       int64_t num_experts) const {
  if (step_.is_recorded)
    throw std::runtime_error("in steps of this size, the host reads how many rows each expert has");
  const int64_t count = num_experts + 1;
  parts_.stream.CopyToHost(parts_.expert_rows, At(row_begin, 0), count * 4);
  if (const Status status = parts_.stream.Synchronize(); !status)
    throw std::runtime_error(status.error().message);
  return {static_cast<const int32_t*>(parts_.expert_rows), static_cast<size_t>(count)};
}

void DeviceWalk::operator()(const program::ProjectExperts& op) {
  const device::GroupedLinearArgs products = ExpertProducts(op, CountOf(op.y));
  // Only with a single rank: with several, each rank would wait for the other ranks while
  // measuring.
  const bool is_apart =
      parts_.ranks == nullptr && device::IsWorthTakingApart(parts_.linear, products);
  if (is_apart && !has_looked_) row_begin_ = ReceiveExpertRows(op.row_begin, products.num_experts);
  has_looked_ = true;
  if (is_apart && !row_begin_.empty())
    device::RunExperts(parts_.linear, parts_.stream, products, row_begin_);
  else
    parts_.linear.RunGrouped(parts_.stream, products);
  std::optional<device::AddLoraArgs> args = AdaptersOf(op.lora, op.device.lora);
  if (!args) return;
  const device::LinearArgs& all = products.linear;
  const int64_t top_k = Moe(op.moe).top_k;
  args->x = all.x;
  args->x_type = all.x_type;
  args->x_scales = all.x_scales;
  args->y = all.y;
  args->y_type = all.y_type;
  args->y_stride = all.y_stride;
  args->num_tiles = all.m;
  args->slots += first_;
  args->order = RowsAt<int32_t>(op.order, 0);
  args->chosen = RowsAt<int32_t>(op.chosen, top_k);
  args->top_k = static_cast<int>(top_k);
  kernels_.add_lora(handle_, *args);
}

void DeviceWalk::operator()(const program::CombineExperts& op) {
  const MoeSpec& spec = Moe(op.moe);
  // With op.adds, `sum` already contains the result of the MLP in parallel with the experts.
  kernels_.combine_experts(
      handle_, {.y = At(op.x, 0),
                .y_type = ElementType::kF32,
                .place = RowsAt<int32_t>(op.place, 0),
                .weights = spec.scale_inputs ? nullptr : RowsAt<float>(op.weights, spec.top_k),
                .rows = CountOf(op.sum),
                .cols = op.width,
                .top_k = static_cast<int>(spec.top_k),
                .add = op.adds,
                .sum = RowsAt<float>(op.sum, op.width),
                .sum_gates = RowsAt<float>(op.gates, 1),
                .bias = Experts(op.biased).first.bias,
                .chosen = RowsAt<int32_t>(op.chosen, spec.top_k)});
}

Status DeviceWalk::TuneExperts(const program::ProjectExperts& op) const {
  const int64_t pairs = program_.limits.pairs;
  const device::GroupedLinearArgs all = ExpertProducts(op, pairs);
  for (const int64_t rows : parts_.linear.TuningRows(pairs)) {
    if (rows < device::kManyExpertRows) continue;
    std::vector<device::LinearArgs> experts;
    const int64_t count = std::min(all.num_experts, device::DeviceLinear::kMostRotatedLayers);
    for (int64_t e = 0; e < count; ++e) experts.push_back(device::ExpertProduct(all, e, 0, rows));
    RETURN_IF_ERROR(parts_.linear.Tune(parts_.stream, experts));
  }
  return {};
}

device::PackedRows DeviceWalk::PackedFor(const program::Project& op, int64_t rows) const {
  if (rows > kMostPackedRows || !executor_.packed_by_.contains(&op)) return {};
  return device::DeviceLinear::PackedIn(executor_.packed_rows_, rows, op.k);
}

// DeviceLinear::Tune measures a product with the weights of several layers, but only of layers of
// the same kind as the first one. So it is called once with each layer as the first.
Status DeviceWalk::Tune() {
  // The products at the same place in each layer (with the same input and output buffers), in the
  // order of the first layer.
  std::vector<std::vector<const program::Project*>> places;
  for (const program::Op& op : program_.ops) {
    const auto* const product = std::get_if<program::Project>(&op);
    if (product == nullptr) continue;
    const auto found = std::ranges::find_if(places, [&](const auto& place) {
      return place.front()->x == product->x && place.front()->y == product->y;
    });
    (found == places.end() ? places.emplace_back() : *found).push_back(product);
  }
  for (const std::vector<const program::Project*>& place : places) {
    const program::Extent extents[] = {
        program_.buffers[static_cast<size_t>(place.front()->x)].extent,
        program_.buffers[static_cast<size_t>(place.front()->y)].extent};
    int64_t most = program_.limits.rows;
    for (const program::Extent extent : extents) most = std::min(most, program_.limits.Of(extent));
    for (const int64_t rows : parts_.linear.TuningRows(most)) {
      std::vector<device::LinearArgs> products;
      for (const program::Project* op : place) products.push_back(ProductOf(*op, rows));
      const std::span<const device::LinearArgs> all = products;
      for (size_t i = 0; i < all.size(); ++i)
        RETURN_IF_ERROR(
            parts_.linear.Tune(parts_.stream, all.subspan(i), PackedFor(*place[i], rows)));
    }
  }
  if (parts_.ranks != nullptr) return {};
  for (const program::Op& op : program_.ops) {
    if (const auto* experts = std::get_if<program::ProjectExperts>(&op))
      RETURN_IF_ERROR(TuneExperts(*experts));
  }
  return {};
}

Status DeviceExecutor::Tune() {
  if (parts_.linear.TuningRows(program_.limits.rows).empty()) return {};
  LOG_INFO("models",
           "choosing between sluice's kernels and the algorithms of {}: products that no earlier "
           "start has measured are measured now",
           parts_.linear.library());
  const auto begin = std::chrono::steady_clock::now();
  const DeviceStep step;
  RETURN_IF_ERROR(DeviceWalk(*this, step).Tune());
  RETURN_IF_ERROR(parts_.stream.Synchronize());
  parts_.linear.SaveTactics();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  LOG_INFO("models", "the kernels are chosen after {:.1f} s", seconds.count());
  return {};
}

void SizeProductBuffers(program::Program& program, const DeviceProgramWeights& weights,
                        const DeviceInfo& device, const device::DeviceLinearOptions& options,
                        bool rounds_whole_rows) {
  int64_t scratch = 0, ordered = 0, packed = 0;
  const auto count = [&](const device::Weights& w, const DeviceInputs& inputs, int64_t rows) {
    // In a plan, the roundings of single layers are not known.
    const bool x_is_mxf4 = inputs.row_scale == device::RowScale::kMxF4 ||
                           (rounds_whole_rows && w.group_type == device::GroupScales::kE8M0);
    scratch = std::max(
        scratch, device::DeviceLinear::PlannedScratchBytes(device, options, w, rows, x_is_mxf4));
  };
  for (const program::Op& op : program.ops) {
    if (const auto* product = std::get_if<program::Project>(&op)) {
      const DeviceLinearWeights* const linear =
          product->linear == kNone ? nullptr
                                   : &weights.linears[static_cast<size_t>(product->linear)];
      count(
          linear == nullptr ? weights.tables[static_cast<size_t>(product->table)] : linear->matrix,
          linear == nullptr ? DeviceInputs() : linear->inputs, program.limits.rows);
      if (linear != nullptr) {
        packed = std::max(packed, device::DeviceLinear::PlannedPackedBytes(
                                      device, options, linear->matrix,
                                      std::min(program.limits.rows, kMostPackedRows)));
      }
      if (linear == nullptr || linear->input_order == nullptr) continue;
      int64_t rows = program.limits.rows;
      for (const program::BufferId buffer : {product->x, product->y}) {
        if (program.buffers[static_cast<size_t>(buffer)].extent == program::Extent::kPart)
          rows = program.limits.part;
      }
      ordered = std::max(ordered, rows * product->k * 2);
    } else if (const auto* experts = std::get_if<program::ProjectExperts>(&op)) {
      const DeviceLinearWeights& first =
          weights.experts[static_cast<size_t>(experts->experts)].first;
      // The experts are computed together or one by one. If one by one, a single expert may get all
      // rows.
      count(first.matrix, first.inputs, program.limits.pairs);
    }
  }
  for (program::Buffer& buffer : program.buffers) {
    if (buffer.name == "linear_scratch") buffer.row_bytes = scratch;
    if (buffer.name == "ordered") buffer.row_bytes = ordered;
    if (buffer.name == "linear_counters") buffer.row_bytes = device::kLinearCounterBytes;
  }
  if (packed == 0) return;
  program.buffers.push_back({.name = std::string(kPackedRows),
                             .extent = program::Extent::kOnce,
                             .row_bytes = packed,
                             .is_kept = true});
}

}  // namespace sluice
