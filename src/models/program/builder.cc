#include "models/program/builder.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice::program {
namespace {

template <typename T>
int32_t Append(std::vector<T>& table, T value) {
  table.push_back(std::move(value));
  return static_cast<int32_t>(table.size()) - 1;
}

// Searches from the end, because operators mostly use the latest entries.
template <typename T>
int32_t FindOrAppend(std::vector<T>& table, T value) {
  for (size_t i = table.size(); i-- > 0;) {
    if (table[i] == value) return static_cast<int32_t>(i);
  }
  return Append(table, value);
}

}  // namespace

Builder::Builder(const ModelOptions& options, InputRounding rounding, bool splits_inputs,
                 const DeviceTarget* device)
    : options_(options),
      rounding_(rounding),
      splits_inputs_(splits_inputs && device == nullptr),
      device_(device) {
  // With this many rows, a pass over the weights is clearly limited by arithmetic. More rows would
  // only enlarge the intermediate buffers, which are the widest buffers of all.
  const int64_t kMostPartRows = is_device() ? 2048 : 768;
  constexpr int64_t kMostSplitRows = 256;
  Limits& limits = program_.limits;
  limits.rows = options.max_rows;
  limits.wanted = std::min(options.max_logit_rows, options.max_rows);
  limits.part = std::min(options.max_rows, kMostPartRows);
  limits.rounded = std::min(options.max_rows, splits_inputs ? kMostSplitRows : kMostPartRows);
}

BufferId Builder::Array(std::string_view name, Extent extent, int64_t row_bytes) {
  const auto found = std::ranges::find(program_.buffers, name, &Buffer::name);
  if (found == program_.buffers.end()) {
    return Append(program_.buffers,
                  {.name = std::string(name), .extent = extent, .row_bytes = row_bytes});
  }
  CHECK(found->extent == extent, "{} has two extents", name);
  found->row_bytes = std::max(found->row_bytes, row_bytes);
  return static_cast<BufferId>(found - program_.buffers.begin());
}

BufferId Builder::Inputs(std::string_view name, Extent extent, int64_t width) {
  if (is_device()) return Array(name, extent, width * 2);
  const bool is_f32 = splits_inputs_ || rounding_ != InputRounding::kNone;
  const ElementType type = is_f32 ? ElementType::kF32 : options_.compute_type;
  return Array(name, extent, width * BitsPerElement(type) / 8);
}

RowsIn Builder::Rows(std::string_view name, Extent extent, int64_t width) {
  RowsIn rows{.data = Inputs(name, extent, width)};
  if (is_device()) rows.scales = F32(fmt::format("{}_scales", name), extent, 1);
  return rows;
}

BufferId Builder::Results(int64_t width) {
  const BufferId results = F32("results", Extent::kWanted, width);
  at(results).is_results = true;
  return results;
}

VectorId Builder::Vector(const std::vector<float>& vector, bool exists) {
  return exists ? Append(program_.vectors, &vector) : kNone;
}
LinearId Builder::Linear(const LinearWeights& weights) {
  return FindOrAppend(program_.linears, &weights);
}
ExpertsId Builder::Experts(const ExpertWeights& weights) {
  return FindOrAppend(program_.experts, &weights);
}
TableId Builder::Table(const kernels::PackedMatrix& table) {
  return FindOrAppend(program_.tables, &table);
}
AttentionId Builder::Attention(const AttentionSpec& attention) {
  return Append(program_.attentions, attention);
}
MoeId Builder::Moe(const MoeSpec& moe) {
  return Append(program_.moes, moe);
}
MixerId Builder::Mixer(const MixerSpec& mixer) {
  return Append(program_.mixers, mixer);
}

ElementType Builder::InputType(const LinearInputs& inputs) const {
  if (is_device()) return ElementType::kBF16;
  return splits_inputs_ || RoundingOf(inputs.format, options_) != InputRounding::kNone
             ? ElementType::kF32
             : options_.compute_type;
}

RoundingBuffers Builder::Rounding(Extent extent, int64_t n, int64_t k) {
  RoundingBuffers buffers;
  if (is_device() || (!splits_inputs_ && rounding_ == InputRounding::kNone)) return buffers;
  const bool is_pairs = extent == Extent::kPairs;
  const int64_t bytes = splits_inputs_ || rounding_ == InputRounding::kF32 ? 4 : 1;
  buffers.rounded = Array(is_pairs ? "rounded_pairs" : "rounded", extent, k * bytes);
  buffers.scales = F32(is_pairs ? "rounded_pair_scales" : "rounded_scales", extent, 1);
  if (splits_inputs_)
    buffers.pairs = F32(is_pairs ? "split_pair_results" : "split_results", extent, 2 * n);
  return buffers;
}

BufferId Builder::LoraScratch(Extent extent) {
  if (!is_device() || device_->lora_ranks == 0) return kNone;
  return F32(extent == Extent::kPairs ? "pair_lora" : "lora", extent, device_->lora_ranks);
}

DeviceInputBuffers Builder::DeviceBuffers(const RowsIn& x, Extent extent) {
  if (!is_device()) return {};
  DeviceInputBuffers buffers{.narrow = x.narrow,
                             .scales = x.scales,
                             .ordered = Array("ordered", Extent::kOnce, 0),
                             .scratch = Array("linear_scratch", Extent::kOnce, 0),
                             .counters = Array("linear_counters", Extent::kOnce, 0),
                             .lora = LoraScratch(extent)};
  Keep(buffers.counters);
  return buffers;
}

Project& Builder::Multiply(const LinearWeights& weights, const RowsIn& x, BufferId y, int64_t n,
                           int64_t k) {
  return Emit(Project{.linear = Linear(weights),
                      .x = x.data,
                      .x_type = InputType(weights.inputs),
                      .y = y,
                      .n = n,
                      .k = k,
                      .y_stride = n,
                      .lora = weights.lora_layer,
                      .rounding = Rounding(Extent::kRounded, n, k),
                      .device = DeviceBuffers(x, Extent::kStep)});
}

ProjectExperts& Builder::MultiplyExperts(const ExpertWeights& weights, const RowsIn& x, BufferId y,
                                         int64_t n, int64_t k) {
  return Emit(ProjectExperts{.experts = Experts(weights),
                             .x = x.data,
                             .y = y,
                             .n = n,
                             .k = k,
                             .lora = weights.lora_layer,
                             .rounding = Rounding(Extent::kPairs, n, k),
                             .device = DeviceBuffers(x, Extent::kPairs)});
}

}  // namespace sluice::program
