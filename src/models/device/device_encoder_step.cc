#include "models/device/device_encoder_step.h"

#include <algorithm>

#include "base/check.h"
#include "base/integer.h"
#include "device/device_pool.h"
#include "models/device/whole_slices.h"

namespace sluice {
namespace {

device::AttentionLimits LimitsOf(const EncoderSpec& spec, const ModelOptions& options) {
  const auto heads = static_cast<int>(spec.num_heads);
  // No limits for splitting are needed: only tiles with long contexts and few new tokens are split,
  // and encoders have no contexts.
  return {.max_rows = options.max_rows,
          .max_slices = std::min(options.max_slices, options.max_rows),
          .max_context = options.max_context,
          .num_heads = heads,
          .num_kv_heads = heads,
          .head_dim = static_cast<int>(spec.head_dim()),
          .max_partial_tokens = 0};
}

bool HasWindows(const EncoderSpec& spec) {
  return std::ranges::find(spec.has_window, true) != spec.has_window.end();
}

}  // namespace

int64_t DeviceEncoderStep::MaxBytes(const EncoderSpec& spec, const ModelOptions& options) {
  const device::AttentionLimits limits = LimitsOf(spec, options);
  int64_t bytes = 0;
  const auto take = [&](int64_t count, size_t element_bytes) {
    bytes += DevicePool::Padded(count * static_cast<int64_t>(element_bytes));
  };
  take(limits.max_rows, sizeof(int32_t));                          // tokens
  take(limits.max_rows, sizeof(int32_t));                          // positions
  if (spec.num_types > 1) take(limits.max_rows, sizeof(int32_t));  // types
  take(std::min(options.max_logit_rows, options.max_rows), sizeof(int32_t));
  take(limits.max_rows, sizeof(int64_t));  // slots
  take(limits.max_slices, sizeof(device::AttentionSliceInfo));
  // Block tables. In each, all blocks except the last are full.
  take(limits.max_rows / options.block_size + limits.max_slices, sizeof(int32_t));
  for (int plan = 0; plan < (HasWindows(spec) ? 2 : 1); ++plan)
    take(device::MaxAttentionItems(limits), sizeof(device::AttentionItem));
  return bytes;
}

Result<DeviceEncoderStep> DeviceEncoderStep::Create(Device& device, const EncoderSpec& spec,
                                                    const ModelOptions& options,
                                                    std::byte* memory) {
  DeviceEncoderStep step;
  step.block_size_ = options.block_size;
  step.num_types_ = spec.num_types;
  step.limits_ = LimitsOf(spec, options);
  step.plans_.push_back({.span = {}, .plan = device::AttentionPlan(step.limits_)});
  if (HasWindows(spec)) {
    step.plans_.push_back({.span = {.window = spec.reach + 1},
                           .ahead = spec.reach,
                           .plan = device::AttentionPlan(step.limits_)});
  }
  ASSIGN_OR_RETURN(step.host_,
                   device.AllocatePinned(MaxBytes(spec, options), "the inputs of a step"));
  step.device_memory_ = memory;
  return step;
}

template <typename T>
std::span<T> DeviceEncoderStep::Take(int64_t count, int64_t& offset) {
  offset = end_;
  end_ += DevicePool::Padded(count * static_cast<int64_t>(sizeof(T)));
  CHECK_LE(end_, host_.size_bytes());
  return {reinterpret_cast<T*>(host_.As<std::byte>() + offset), static_cast<size_t>(count)};
}

void DeviceEncoderStep::Send(DeviceStream& stream, const StepInput& input) {
  end_ = 0;
  const auto copy = [&](std::span<const int32_t> from, int64_t& offset) {
    std::ranges::copy(from, Take<int32_t>(std::ssize(from), offset).begin());
  };
  copy(input.tokens, tokens_);
  copy(input.positions, positions_);
  copy(input.logit_rows, logit_rows_);
  WriteTypes(input);
  WriteSlices(input);
  WritePlans(std::ssize(input.slices));
  stream.CopyToDevice(device_memory_, host_.data(), end_);
}

void DeviceEncoderStep::WriteTypes(const StepInput& input) {
  has_types_ = false;
  for (size_t i = 0; i < input.second_texts.size(); ++i)
    has_types_ = has_types_ || input.second_texts[i] < input.slices[i].num_tokens;
  if (!has_types_) return;
  CHECK_GT(num_types_, 1);
  const std::span<int32_t> types = Take<int32_t>(std::ssize(input.tokens), types_);
  std::ranges::fill(types, 0);
  for (size_t i = 0; i < input.second_texts.size(); ++i) {
    const kernels::AttentionSlice& slice = input.slices[i];
    const int64_t first = std::min(input.second_texts[i], slice.num_tokens);
    std::fill(types.begin() + slice.first_row + first,
              types.begin() + slice.first_row + slice.num_tokens, 1);
  }
}

void DeviceEncoderStep::WriteSlices(const StepInput& input) {
  int64_t table_entries = 0;
  for (const kernels::AttentionSlice& slice : input.slices)
    table_entries += CeilDiv(int64_t{slice.num_tokens}, int64_t{block_size_});
  int64_t* const slot = Take<int64_t>(std::ssize(input.tokens), slots_).data();
  auto* info = Take<device::AttentionSliceInfo>(std::ssize(input.slices), slices_).data();
  int32_t* const tables = Take<int32_t>(table_entries, tables_).data();
  SliceWriter writer{block_size_, slot, tables, tables};
  for (const kernels::AttentionSlice& slice : input.slices) *info++ = writer.Write(slice);
}

void DeviceEncoderStep::WritePlans(int64_t num_slices) {
  const std::span slices(
      reinterpret_cast<const device::AttentionSliceInfo*>(host_.As<std::byte>() + slices_),
      static_cast<size_t>(num_slices));
  for (SpanPlan& mine : plans_) {
    device::PlanAttention(limits_, slices, mine.span, mine.plan, mine.ahead);
    CHECK(mine.plan.merges.empty());
    const std::vector<device::AttentionItem>& items = mine.plan.items;
    std::ranges::copy(items, Take<device::AttentionItem>(std::ssize(items), mine.items).begin());
  }
}

device::AttentionArgs DeviceEncoderStep::Attention(const program::Attend& op,
                                                   const AttentionSpec& /*spec*/,
                                                   int64_t /*group*/) const {
  const bool has_window = op.reach > 0;
  const SpanPlan& mine = has_window ? plans_.back() : plans_.front();
  device::AttentionArgs args = {};
  args.window = mine.span.window;
  args.ahead = mine.ahead;
  args.items = OnDevice<device::AttentionItem>(mine.items);
  args.num_items = static_cast<int>(mine.plan.items.size());
  args.num_wide_items = mine.plan.num_wide_items;
  args.slices = OnDevice<device::AttentionSliceInfo>(slices_);
  args.tables = OnDevice<int32_t>(tables_);
  return args;
}

}  // namespace sluice
