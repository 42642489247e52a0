#include "models/device/device_executor.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/linear_plan.h"
#include "models/device/device_walk.h"
#include "models/program/print.h"

namespace sluice {

using program::kNone;

DevicePlan DevicePlan::For(const program::Program& program, bool keeps_apart) {
  DevicePlan plan;
  static_cast<program::BufferPlan&>(plan) =
      program::BufferPlan::For(program, DevicePool::kAlignment);
  if (!keeps_apart) return plan;
  ArrayCutter cutter(/*keeps_apart=*/true);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const program::Buffer& buffer = program.buffers[i];
    plan.offsets[i] = cutter.Take(program.limits.Of(buffer.extent) * buffer.row_bytes);
  }
  plan.gaps = cutter.gaps();
  return plan;
}

void AddStepInputs(program::Program& program, int64_t bytes) {
  program.buffers.push_back({.name = "step_inputs",
                             .extent = program::Extent::kOnce,
                             .row_bytes = bytes,
                             .is_kept = true});
}

void AddImageRows(program::Program& program, int64_t bytes) {
  program.buffers.push_back({.name = std::string(kImageRows),
                             .extent = program::Extent::kOnce,
                             .row_bytes = bytes,
                             .is_kept = true});
}

int64_t ExchangedBytes(const program::Program& program) {
  // If experts are computed in parts, there are fewer pairs of row and expert than for the rows of
  // a whole step.
  int64_t most = 0, pairs_each = 1;
  for (const program::Op& op : program.ops) {
    if (const auto* const parts = std::get_if<program::Parts>(&op))
      pairs_each = std::max(pairs_each, parts->pairs_each);
  }
  const auto count = [&](program::BufferId id) {
    if (id == kNone) return;
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    int64_t rows = std::min(kMostExchangedRows, program.limits.rows);
    if (buffer.extent == program::Extent::kPairs) rows *= pairs_each;
    most = std::max(most, std::min(rows, program.limits.Of(buffer.extent)) * buffer.row_bytes);
  };
  for (const program::Op& op : program.ops) {
    if (const auto* const gather = std::get_if<program::Gather>(&op)) {
      if (gather->cut != program::Gather::Cut::kLogits) count(gather->joined);
    } else if (const auto* const append = std::get_if<program::RopeAppend>(&op)) {
      count(append->joined);
    } else if (const auto* const embed = std::get_if<program::Embed>(&op)) {
      if (embed->own != kNone) count(embed->out);
    }
  }
  return most;
}

void AddExchange(program::Program& program) {
  program.buffers.push_back({.name = std::string(kExchange),
                             .extent = program::Extent::kOnce,
                             .row_bytes = PeerExchange::MemoryBytes(ExchangedBytes(program)),
                             .is_kept = true});
}

namespace {

bool Exchanges(const program::Op& op) {
  if (const auto* const embed = std::get_if<program::Embed>(&op)) return embed->own != kNone;
  if (const auto* const append = std::get_if<program::RopeAppend>(&op))
    return append->own_q_squares != kNone;
  return std::holds_alternative<program::Gather>(op);
}

// Whether the result of the gather at `index` in `buffer` is short-lived: it is read only before
// the next exchange, and replaced only by another gather.
bool IsFleeting(const program::Program& program, size_t index, program::BufferId buffer) {
  bool has_exchanged = false;
  for (size_t i = index + 1; i < program.ops.size(); ++i) {
    const program::Op& op = program.ops[i];
    bool reads = false, writes = false;
    std::visit(
        [&](const auto& one) {
          one.Operands([&](program::BufferId id, program::Access access) {
            if (id != buffer) return;
            const bool is_input =
                access == program::Access::kRead || access == program::Access::kUpdate;
            reads = reads || is_input;
            writes = writes || !is_input;
          });
        },
        op);
    if (reads && has_exchanged) return false;
    if (writes) return std::holds_alternative<program::Gather>(op);
    has_exchanged = has_exchanged || Exchanges(op);
  }
  return true;
}

// Returns the buffer of product inputs that the operator's kernel can pack; kNone if it cannot pack
// any.
program::BufferId PackableRows(const program::Op& op) {
  if (const auto* const norm = std::get_if<program::Norm>(&op))
    return norm->reader.linear == kNone ? kNone : norm->out;
  if (const auto* const convert = std::get_if<program::Convert>(&op))
    return convert->reader.linear == kNone ? kNone : convert->x;
  const auto* const gate = std::get_if<program::GateMul>(&op);
  if (gate == nullptr || gate->is_gathered || gate->reader.linear == kNone) return kNone;
  switch (gate->gate) {
    case program::Gate::kSilu:
    case program::Gate::kGeluTanh:
    case program::Gate::kRule: return gate->y;
    default: return kNone;
  }
}

bool Writes(const program::Op& op, program::BufferId buffer) {
  bool writes = false;
  std::visit(
      [&](const auto& one) {
        one.Operands([&](program::BufferId id, program::Access access) {
          writes = writes || (id == buffer && access != program::Access::kRead);
        });
      },
      op);
  return writes;
}

}  // namespace

void AddKeptRows(program::Program& program, int64_t bytes) {
  program.buffers.push_back({.name = std::string(kKeptRows),
                             .extent = program::Extent::kOnce,
                             .row_bytes = bytes,
                             .is_kept = true});
}

DeviceExecutor::DeviceExecutor(program::Program program, DeviceProgramWeights weights,
                               DevicePlan plan, std::byte* workspace, const Parts& parts)
    : program_(std::move(program)),
      weights_(std::move(weights)),
      plan_(std::move(plan)),
      workspace_(workspace),
      parts_(parts),
      addresses_(program_.buffers.size()),
      homes_(program_.buffers.size()),
      moved_(program_.buffers.size()) {
  if (parts_.op_times != nullptr && parts_.place.tensor_rank == 0) {
    for (const program::Op& op : program_.ops)
      counts_.push_back(&parts_.op_times->Of(program::LabelOf(program_, op)));
  }
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const auto* const gather = std::get_if<program::Gather>(&program_.ops[i]);
    if (gather == nullptr || gather->all == kNone) continue;
    // Rows that are rounded immediately are not read later.
    const bool rounds =
        gather->all_f32 != kNone && weights_.InputsOf(gather->reader).RoundsWholeRows();
    if (rounds || IsFleeting(program_, i, gather->all)) fleeting_.insert(gather);
  }
  FindPackedRows();
  // The tables point to objects of the loader.
  program_.tables.clear();
  program_.linears.clear();
  program_.experts.clear();
  program_.vectors.clear();
  parts_.stream.Fill(BufferAt("linear_counters"), 0, device::kLinearCounterBytes);
}

void DeviceExecutor::FindPackedRows() {
  const auto is_here = [](const program::Buffer& buffer) { return buffer.name == kPackedRows; };
  if (std::ranges::none_of(program_.buffers, is_here)) return;
  packed_rows_ = BufferAt(kPackedRows);
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    const program::BufferId rows = PackableRows(program_.ops[i]);
    if (rows == kNone) continue;
    for (size_t j = i + 1; j < program_.ops.size(); ++j) {
      const program::Op& op = program_.ops[j];
      const auto* const product = std::get_if<program::Project>(&op);
      if (product != nullptr && product->x == rows && ReadsNvF4(*product)) {
        packed_by_[product] = static_cast<int32_t>(i);
        packs_for_.try_emplace(static_cast<int32_t>(i), product);
      }
      // In a step of several parts, a part has fewer rows than were packed, so Run packs them.
      if (Writes(op, rows) || PackableRows(op) != kNone) break;
    }
  }
}

bool DeviceExecutor::ReadsNvF4(const program::Project& product) const {
  if (product.linear == kNone || product.is_plain) return false;
  const DeviceLinearWeights& linear = weights_.linears[static_cast<size_t>(product.linear)];
  return linear.inputs.row_scale == device::RowScale::kNvF4 && linear.input_order == nullptr;
}

int64_t DeviceExecutor::Run(const DeviceStep& step) {
  return DeviceWalk(*this, step).Run();
}

DeviceWalk::DeviceWalk(DeviceExecutor& executor, const DeviceStep& step)
    : Walk(executor.program_, step.rows, step.wanted > 0, step.takes_target),
      executor_(executor),
      weights_(executor.weights_),
      parts_(executor.parts_),
      step_(step),
      kernels_(parts_.kernels),
      handle_(parts_.stream.handle()) {
  for (size_t i = 0; i < executor_.addresses_.size(); ++i) {
    Move(static_cast<BufferId>(i), executor_.BufferAt(static_cast<BufferId>(i)));
    executor_.moved_[i] = false;
  }
}

int64_t DeviceWalk::Run() {
  if (parts_.ranks != nullptr) parts_.ranks->BeginStep(step_.is_recorded);
  RunOps(0, static_cast<int32_t>(program_.ops.size()));
  return rows_;
}

void DeviceWalk::RunAt(int32_t index) {
  const auto at = static_cast<size_t>(index);
  index_ = index;
  if (executor_.counts_.empty()) return RunOne(program_.ops[at]);
  const auto begin = std::chrono::steady_clock::now();
  RunOne(program_.ops[at]);
  if (const Status status = parts_.stream.Synchronize(); !status)
    throw std::runtime_error(status.error().message);
  executor_.counts_[at]->Add((std::chrono::steady_clock::now() - begin) /
                             std::chrono::nanoseconds(1));
}

std::byte* DeviceWalk::At(BufferId buffer, int64_t row_bytes) const {
  if (buffer == kNone) return nullptr;
  const auto index = static_cast<size_t>(buffer);
  const bool is_of_step = program_.buffers[index].extent == program::Extent::kStep;
  return executor_.addresses_[index] + (is_of_step ? first_ * row_bytes : 0);
}

device::RowsOut DeviceWalk::RowsOutAt(BufferId data, BufferId scales, int64_t width,
                                      const DeviceInputs& inputs) const {
  return {.data = At(data, width * DeviceElementBytes(inputs.type)),
          .type = inputs.type,
          .scales = inputs.has_scales() ? RowsAt<float>(scales, 1) : nullptr,
          .row_scale = inputs.row_scale,
          .static_scale = inputs.static_scale};
}

device::RowsOut DeviceWalk::PackedRowsOutAt(BufferId data, BufferId scales, int64_t width,
                                            int64_t rows, const DeviceInputs& inputs) {
  device::RowsOut out = RowsOutAt(data, scales, width, inputs);
  const auto found = executor_.packs_for_.find(index_);
  if (found == executor_.packs_for_.end() || rows > kMostPackedRows ||
      inputs.row_scale != device::RowScale::kNvF4)
    return out;
  const device::PackedRows place =
      parts_.linear.PlaceToPack(ProductOf(*found->second, rows), executor_.packed_rows_);
  packed_ = {.by = index_, .rows = out.data, .count = rows, .at = place};
  out.codes = place.codes;
  out.group_scales = place.scales;
  return out;
}

device::KvArrays DeviceWalk::ArraysOf(int64_t layer, float k_scale, float v_scale) const {
  const kernels::KvCacheView& view = step_.cache->layer(layer);
  const bool is_f8 = view.layout.type == ElementType::kF8E4M3;
  return {.k = view.k,
          .v = view.v,
          .type = is_f8 ? ElementType::kF8E4M3 : ElementType::kBF16,
          .k_scale = is_f8 ? k_scale : 1,
          .v_scale = is_f8 ? v_scale : 1,
          .num_kv_heads = view.layout.num_kv_heads,
          .head_dim = view.layout.head_dim,
          .block_size = view.layout.block_size,
          .block_rows = static_cast<int>(view.layout.BlockStride() / view.layout.head_dim)};
}

void DeviceWalk::operator()(const program::Embed& op) {
  device::EmbeddingArgs args = {
      .tokens = step_.inputs->tokens(),
      .table = static_cast<const uint16_t*>(weights_.tables[static_cast<size_t>(op.table)].codes),
      .rows = rows_,
      .cols = op.width,
      .out = RowsAt<float>(op.out, op.width),
      .scale = op.scale};
  float* const out = args.out;
  if (op.own == kNone) {
    kernels_.embedding(handle_, args);
  } else {
    const std::span<const int64_t> embeddings = step_.inputs->embeddings();
    args.rows = step_.inputs->num_own_tokens();
    args.out = RowsAt<float>(op.own, op.width);
    kernels_.embedding(handle_, args);
    if (!parts_.ranks->PlaceEmbeddings(parts_.stream, rows_, args.out, args.rows,
                                       step_.inputs->own_token_rows(), out)) {
      std::byte* const all = At(op.scratch, 0);
      parts_.ranks->GatherEmbeddings(parts_.stream, embeddings, args.out, all);
      kernels_.take_rows(handle_, {.in = all,
                                   .indices = step_.inputs->embedding_places(),
                                   .rows = rows_,
                                   .row_bytes = op.width * 4,
                                   .out = out});
    }
  }
  std::optional<device::AddLoraArgs> lora = AdaptersOf(op.lora, op.lora_scratch);
  if (!lora) return;
  lora->tokens = step_.inputs->all_tokens();
  lora->y = out;
  lora->y_type = ElementType::kF32;
  lora->y_stride = op.width;
  lora->scale = op.scale;
  lora->num_rows = rows_;
  lora->slots = nullptr;
  kernels_.add_lora(handle_, *lora);
}

void DeviceWalk::operator()(const program::MixTable& op) {
  kernels_.layer_embeddings(
      handle_,
      {.tokens = step_.inputs->tokens(),
       .table = static_cast<const uint16_t*>(weights_.tables[static_cast<size_t>(op.table)].codes),
       .rows = rows_,
       .num_layers = op.num_layers,
       .width = op.width,
       .weight = Vector(op.weight),
       .eps = program_.norm_eps,
       .projection_scale = op.projection_scale,
       .table_scale = op.table_scale,
       .sum_scale = op.sum_scale,
       .x = RowsAt<float>(op.x, op.num_layers * op.width)});
}

void DeviceWalk::operator()(const program::AddEmbeddings& op) {
  kernels_.add_embeddings(handle_, {.out = RowsAt<float>(op.x, op.width),
                                    .rows = rows_,
                                    .cols = op.width,
                                    .position_table = Vector(op.positions),
                                    .positions = step_.inputs->positions(),
                                    .first_position = static_cast<int32_t>(op.first_position),
                                    .type_table = Vector(op.type_table),
                                    .types = step_.inputs->types()});
}

void DeviceWalk::operator()(const program::RopeTable& op) {
  int64_t first = 0;
  for (int32_t table = 0; table < op.table; ++table)
    first += std::ssize(program_.rope_tables[static_cast<size_t>(table)]);
  const auto rotary_dim =
      static_cast<int>(2 * std::ssize(program_.rope_tables[static_cast<size_t>(op.table)]));
  device::RopeTableArgs args = {.positions = step_.inputs->positions(),
                                .frequencies = weights_.rope_frequencies + first,
                                .rows = rows_,
                                .rotary_dim = rotary_dim,
                                .cos_sin = RowsAt<float>(op.out, rotary_dim),
                                .amplitude = op.amplitude};
  if (op.axes != kNone) {
    const std::vector<int8_t>& axes = program_.rope_axes[static_cast<size_t>(op.axes)];
    CHECK_LE(std::ssize(axes), device::kMostAxialFrequencies);
    args.positions = step_.inputs->rope_positions();
    args.has_axes = true;
    std::ranges::copy(axes, args.axes);
  }
  kernels_.rope_table(handle_, args);
}

void DeviceWalk::operator()(const program::Receive& op) {
  if (op.wanted_out != kNone) {
    rows_ = step_.wanted;
    are_wanted_ = true;
    Move(op.out, At(op.wanted_out, 0));
  }
  const int from = op.from_stage * parts_.place.tensor_size + parts_.place.tensor_rank;
  parts_.ranks->group().Receive(parts_.stream, At(op.out, 0), rows_ * op.width * 4, from);
}

void DeviceWalk::operator()(const program::Send& op) {
  const RankPlace& place = parts_.place;
  const int to = (place.stage + 1) % place.num_stages * place.tensor_size + place.tensor_rank;
  parts_.ranks->group().Send(parts_.stream, At(op.x, 0), rows_ * op.width * 4, to);
}

void DeviceWalk::operator()(const program::Norm& op) {
  kernels_.rms_norm(
      handle_,
      {.residual = RowsAt<float>(op.residual, op.width),
       .delta = At(op.delta, op.width * 4),
       .delta_type = ElementType::kF32,
       .weight = Vector(op.weight),
       .eps = program_.norm_eps,
       .rows = rows_,
       .cols = op.width,
       .out = PackedRowsOutAt(op.out, op.scales, op.width, rows_, weights_.InputsOf(op.reader)),
       .out_f32 = RowsAt<float>(op.out_f32, op.width),
       .sum_factor =
           op.sum_factor == kNone ? 1 : weights_.first_numbers[static_cast<size_t>(op.sum_factor)],
       .delta_factor = op.delta_factor});
}

void DeviceWalk::operator()(const program::LayerNorm& op) {
  const bool is_f32 = op.type == ElementType::kF32;
  kernels_.layer_norm(handle_, {.residual = RowsAt<float>(op.residual, op.width),
                                .delta = RowsAt<float>(op.delta, op.width),
                                .weight = Vector(op.weight),
                                .bias = Vector(op.bias),
                                .eps = op.eps.value_or(program_.norm_eps),
                                .rows = rows_,
                                .cols = op.width,
                                .keeps_norm = op.keeps_norm,
                                .out = is_f32 ? nullptr : RowsAt<uint16_t>(op.out, op.width),
                                .out_f32 = is_f32 ? RowsAt<float>(op.out, op.width) : nullptr});
}

void DeviceWalk::operator()(const program::NormRows& op) {
  auto* const x = RowsAt<float>(op.x, op.width);
  kernels_.rms_norm(handle_, {.residual = x,
                              .delta = RowsAt<float>(op.y, op.width),
                              .delta_type = ElementType::kF32,
                              .weight = Vector(op.weight),
                              .eps = op.eps.value_or(program_.norm_eps),
                              .rows = rows_,
                              .cols = op.width,
                              .out = {.data = x, .type = ElementType::kF32},
                              .out_f32 = nullptr});
}

void DeviceWalk::operator()(const program::KeepRows& op) {
  if (step_.wanted == rows_) return;
  rows_ = step_.wanted;
  are_wanted_ = true;
  for (const program::KeepRows::Kept& kept : op.kept) {
    if (kept.columns.buffer == kNone) continue;
    std::byte* const to = At(kept.to, 0);
    kernels_.take_rows(handle_, {.in = At(kept.columns.buffer, 0) + kept.columns.begin,
                                 .indices = step_.inputs->logit_rows(),
                                 .rows = rows_,
                                 .row_bytes = kept.bytes,
                                 .out = to,
                                 .in_stride = kept.columns.stride});
    Move(kept.columns.buffer, to);
    executor_.moved_[static_cast<size_t>(kept.columns.buffer)] = true;
  }
}

void DeviceWalk::operator()(const program::Gather& op) {
  using Cut = program::Gather::Cut;
  DeviceRanks& ranks = *parts_.ranks;
  DeviceRanks::Place place = {.rows = CountOf(op.own),
                              .own = At(op.own, 0),
                              .joined = At(op.joined, 0),
                              .is_fleeting = executor_.fleeting_.contains(&op)};
  if (op.all != kNone) place.all = executor_.homes_[static_cast<size_t>(op.all)];
  int64_t bytes = DeviceElementBytes(op.type);
  if (op.cut == Cut::kLogits) return ranks.GatherLogits(parts_.stream, place);
  // The operators up to the next gather read the rows at this address.
  std::byte*& address = executor_.addresses_[static_cast<size_t>(op.all)];
  if (op.cut == Cut::kHeads) {
    const AttentionSpec& whole = WholeAttention(op.count);
    address = static_cast<std::byte*>(
        ranks.GatherHeads(parts_.stream, whole, whole.output_dim() * bytes, place));
    return;
  }
  if (op.cut == Cut::kMixer) {
    const MixerSpec& whole = *parts_.whole.layers[static_cast<size_t>(op.count)].mixer;
    address = static_cast<std::byte*>(
        ranks.GatherMixed(parts_.stream, whole, whole.head_dim * bytes, place));
    return;
  }
  const DeviceInputs& inputs = weights_.InputsOf(op.reader);
  const bool rounds_later = inputs.RoundsWholeRows();
  if (op.reader.linear != kNone || op.reader.experts != kNone) {
    bytes = rounds_later ? 4 : DeviceElementBytes(inputs.type);
    if (rounds_later) place.all = At(op.all_f32, 0);
  }
  void* const gathered = ranks.GatherRowsOf(parts_.stream, op.count, bytes, place);
  address = rounds_later ? executor_.homes_[static_cast<size_t>(op.all)]
                         : static_cast<std::byte*>(gathered);
  if (!rounds_later) return;
  kernels_.convert_rows(handle_, {.x = gathered,
                                  .x_type = ElementType::kF32,
                                  .rows = place.rows,
                                  .cols = op.count,
                                  .out = RowsOutAt(op.all, op.scales, 0, inputs)});
}

// E4M3 rows are written to a separate buffer. NVFP4 and MXFP4 rows replace the unrounded rows.
void DeviceWalk::operator()(const program::Convert& op) {
  if (std::exchange(converted_, -1) == index_) return;
  const DeviceInputs& inputs = weights_.InputsOf(op.reader);
  const bool is_f32 = op.from != kNone;
  if (!is_f32 && !inputs.is_rounded()) return;
  const BufferId to = inputs.type == ElementType::kBF16 ? op.x : op.narrow;
  kernels_.convert_rows(handle_, {.x = is_f32 ? At(op.from, op.width * 4) : At(op.x, op.width * 2),
                                  .x_type = is_f32 ? ElementType::kF32 : ElementType::kBF16,
                                  .rows = rows_,
                                  .cols = op.width,
                                  .out = PackedRowsOutAt(to, op.scales, op.width, rows_, inputs)});
}

// Applies the gate to rows of the last product. If ranks gather rows whose rounding depends on the
// whole row, the rows are F32 until then.
void DeviceWalk::operator()(const program::GateMul& op) {
  const DeviceInputs& inputs = weights_.InputsOf(op.reader);
  const int64_t rows = CountOf(op.x);
  device::RowsOut out = PackedRowsOutAt(op.y, op.scales, 0, rows, inputs);
  if (op.is_gathered && inputs.RoundsWholeRows())
    out = {.data = out.data, .type = ElementType::kF32};
  using program::Gate;
  using Kind = kernels::ActivationKind;
  const bool has_rule = op.gate == Gate::kRule;
  const Kind rule = has_rule ? op.rule.kind : Kind::kSilu;
  switch (op.gate) {
    case Gate::kGeluErf:
    case Gate::kPlainGelu:
    case Gate::kPlainRelu:
      return kernels_.activate(handle_, {.x = RowsAt<uint16_t>(op.x, 0),
                                         .rows = rows,
                                         .width = op.width,
                                         .gated = op.gate == Gate::kGeluErf,
                                         .relu = op.gate == Gate::kPlainRelu,
                                         .out = static_cast<uint16_t*>(out.data)});
    case Gate::kClampedSwiglu:
      return kernels_.clamped_swiglu(handle_,
                                     {.x = RowsAt<float>(op.x, 0),
                                      .rows = rows,
                                      .width = op.width,
                                      .alpha = op.clamp.alpha,
                                      .limit = op.clamp.limit,
                                      .bias = Experts(op.biased).first.bias,
                                      .order = RowsAt<int32_t>(op.order, 0),
                                      .chosen = RowsAt<int32_t>(op.chosen, Moe(op.moe).top_k),
                                      .out = out});
    case Gate::kRule:
      CHECK(rule == Kind::kRelu2 || rule == Kind::kGeluTanh || rule == Kind::kQuickGelu ||
                rule == Kind::kSilu,
            "devices have no kernel of this activation");
      break;
    case Gate::kSilu:
    case Gate::kGeluTanh: break;
  }
  device::SiluMulArgs args = {.x = At(op.x, 0),
                              .x_type = op.x_type,
                              .rows = rows,
                              .width = op.width,
                              .out = out,
                              .gelu = op.gate == Gate::kGeluTanh || rule == Kind::kGeluTanh,
                              .relu2 = rule == Kind::kRelu2,
                              .plain = !op.is_gated,
                              .gate_factor = op.gate_factor,
                              .quick_gelu = rule == Kind::kQuickGelu};
  if (op.factors.buffer != kNone) {
    const auto buffer = static_cast<size_t>(op.factors.buffer);
    // The rows that were moved contain only these columns.
    const bool moved = executor_.moved_[buffer];
    args.factor_stride = moved ? op.width : op.factors.stride;
    args.factors = reinterpret_cast<const float*>(executor_.addresses_[buffer]) +
                   first_ * args.factor_stride + (moved ? 0 : op.factors.begin);
  }
  kernels_.silu_mul(handle_, args);
}

void DeviceWalk::SumHeadSquares(const program::RopeAppend& op, const AttentionSpec& spec,
                                device::RopeAppendArgs& args) {
  const RankPlace& place = parts_.place;
  const bool is_shared = op.own_q_squares != kNone;
  const AttentionSpec& whole = is_shared ? WholeAttention(op.model_layer) : spec;
  // If several ranks have the same head of k, only the first of these ranks adds it to the sum.
  const RowRange keys = FirstHeldKeys(whole, place.tensor_rank, place.tensor_size);
  float* const q = RowsAt<float>(op.q_squares, 0);
  float* const k = RowsAt<float>(op.k_squares, 0);
  float* const own_q = is_shared ? RowsAt<float>(op.own_q_squares, 0) : q;
  float* const own_k = is_shared ? RowsAt<float>(op.own_k_squares, 0) : k;
  kernels_.head_squares(handle_, {.qkv = args.qkv,
                                  .qkv_type = args.qkv_type,
                                  .rows = rows_,
                                  .row_heads = spec.num_heads + 2 * spec.num_kv_heads,
                                  .num_heads = spec.num_heads,
                                  .num_kv_heads = static_cast<int>(keys.size()),
                                  .head_dim = spec.head_dim,
                                  .q = own_q,
                                  .k = own_k});
  args.q_squares = q;
  args.k_squares = k;
  args.square_heads = whole.num_heads;
  args.square_kv_heads = whole.num_kv_heads;
  if (!is_shared) return;
  const HeadCut heads = CutHeads(whole, place.tensor_rank, place.tensor_size);
  args.q_norm += heads.q.begin * whole.head_dim;
  args.k_norm += heads.kv.begin * whole.head_dim;
  std::byte* const joined = At(op.joined, 0);
  parts_.ranks->GatherHeads(parts_.stream, whole, sizeof(float),
                            {.rows = rows_, .own = own_q, .joined = joined, .all = q});
  parts_.ranks->GatherKeyHeads(parts_.stream, whole, sizeof(float),
                               {.rows = rows_, .own = own_k, .joined = joined, .all = k});
}

void DeviceWalk::operator()(const program::RopeAppend& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  device::RopeAppendArgs args = {};
  args.qkv = At(op.x, 0);
  args.qkv_type = op.x_type;
  args.rows = rows_;
  args.num_heads = spec.num_heads;
  args.q_norm = Vector(op.q_norm);
  args.k_norm = Vector(op.k_norm);
  args.norms_after_rope = spec.qk_norm == QkNorm::kAfterRopeUnweighted;
  args.eps = program_.norm_eps;
  args.rope = spec.rope;
  args.rotary_dim = spec.rotated();
  args.interleaved = spec.rope_style == kernels::RopeStyle::kInterleaved;
  args.cos_sin = RowsAt<float>(op.cos_sin, 0);
  args.positions = step_.inputs->positions();
  if (spec.temperature_tuning) {
    args.temperature_floor = static_cast<float>(spec.temperature_tuning->floor_scale);
    args.temperature_scale = static_cast<float>(spec.temperature_tuning->attn_scale);
    args.temperature_first = spec.temperature_tuning->first;
  }
  args.slots = step_.inputs->slots(step_.cache->group(op.cache_layer));
  args.q = RowsAt<uint16_t>(op.q, 0);
  args.cache = ArraysOf(op.cache_layer, op.k_scale, op.v_scale);
  args.kv = !spec.has_own_kv()     ? device::RowKv::kNone
            : spec.values_are_keys ? device::RowKv::kKeys
                                   : device::RowKv::kBoth;
  args.norms_values = spec.norms_values;
  if (spec.gate == AttentionGate::kInQueries) args.gate_heads = spec.num_heads;
  if (spec.qk_norm == QkNorm::kWholeWidth) SumHeadSquares(op, spec, args);
  kernels_.rope_append(handle_, args);
}

void DeviceWalk::operator()(const program::Attend& op) {
  const AttentionSpec& spec = program_.attentions[static_cast<size_t>(op.attention)];
  device::AttentionArgs args =
      step_.inputs->Attention(op, spec, step_.cache->group(op.cache_layer));
  args.q = RowsAt<uint16_t>(op.q, 0);
  args.num_heads = spec.num_heads;
  args.scale = spec.softmax_scale();
  args.cache = ArraysOf(op.cache_layer, op.k_scale, op.v_scale);
  args.partials = RowsAt<float>(op.scratch, 0);
  args.out = RowsAt<uint16_t>(op.out, 0);
  args.soft_cap = spec.soft_cap;
  args.sinks = Vector(op.sinks);
  if (spec.latent) args.latent_dim = spec.latent->kv_rank;
  if (op.chosen != kNone) {
    // The chosen positions serve as a block table, with one position per block.
    args.tables = RowsAt<int32_t>(op.chosen, spec.latent->indexer->top_k);
    args.cache.block_size = args.cache.block_rows = 1;
  }
  // Wide tiles leave no registers for converting their results.
  const auto* const next =
      static_cast<size_t>(index_) + 1 < program_.ops.size()
          ? std::get_if<program::Convert>(&program_.ops[static_cast<size_t>(index_) + 1])
          : nullptr;
  if (next != nullptr && op.narrow != kNone && next->narrow == op.narrow && next->x == op.out &&
      args.num_wide_items == 0) {
    const DeviceInputs& inputs = weights_.InputsOf(next->reader);
    if (inputs.type == ElementType::kF8E4M3 && inputs.row_scale == device::RowScale::kStatic) {
      args.narrow = RowsAt<uint8_t>(op.narrow, next->width);
      args.narrow_scales = RowsAt<float>(op.scales, 1);
      args.narrow_scale = inputs.static_scale;
      converted_ = index_ + 1;
    }
  }
  kernels_.attention(handle_, args);
}

void DeviceWalk::operator()(const program::FinishLogits& op) {
  kernels_.cap_logits(
      handle_,
      {.x = RowsAt<float>(op.x, 0), .count = rows_ * op.width, .cap = op.cap, .scale = op.scale});
}

void DeviceWalk::operator()(const program::CopyResults& op) {
  parts_.stream.CopyToHost(step_.results, At(op.x, 0), rows_ * op.width * 4);
}

}  // namespace sluice
