#include "models/device/device_tower_step.h"

#include <algorithm>

#include "base/check.h"
#include "base/integer.h"
#include "device/device_pool.h"
#include "models/device/whole_slices.h"

namespace sluice {

device::AttentionLimits DeviceTowerStep::LimitsOf(const TowerSpec& spec,
                                                  const ModelOptions& options) {
  const auto heads = static_cast<int>(spec.heads);
  // No limits for splitting are needed: only tiles with long contexts and few new tokens are split,
  // and towers have no contexts.
  return {.max_rows = options.max_rows,
          .max_slices = options.max_slices,
          .max_context = options.max_context,
          .num_heads = heads,
          .num_kv_heads = heads,
          .head_dim = static_cast<int>(spec.head_dim),
          .max_partial_tokens = 0};
}

int64_t DeviceTowerStep::MaxBytes(const TowerSpec& spec, const ModelOptions& options,
                                  int64_t num_blocks) {
  const device::AttentionLimits limits = LimitsOf(spec, options);
  int64_t bytes = 0;
  const auto take = [&](int64_t count, size_t element_bytes) {
    bytes += DevicePool::Padded(count * static_cast<int64_t>(element_bytes));
  };
  take(limits.max_rows, sizeof(int32_t));      // positions
  take(2 * limits.max_rows, sizeof(int32_t));  // positions on both axes
  take(options.max_logit_rows, sizeof(int32_t));
  take(options.max_logit_rows, sizeof(int32_t));
  for (size_t group = 0; group < NumGroups(spec); ++group) {
    take(limits.max_rows, sizeof(int64_t));  // slots
    take(limits.max_slices, sizeof(device::AttentionSliceInfo));
    take(num_blocks, sizeof(int32_t));  // tables
    take(device::MaxAttentionItems(limits), sizeof(device::AttentionItem));
  }
  return bytes;
}

Result<DeviceTowerStep> DeviceTowerStep::Create(Device& device, const TowerSpec& spec,
                                                const ModelOptions& options, int64_t num_blocks,
                                                std::byte* memory) {
  DeviceTowerStep step;
  step.block_size_ = options.block_size;
  step.num_groups_ = NumGroups(spec);
  step.limits_ = LimitsOf(spec, options);
  for (size_t group = 0; group < step.num_groups_; ++group)
    step.groups_[group].plan = device::AttentionPlan(step.limits_);
  ASSIGN_OR_RETURN(step.host_, device.AllocatePinned(MaxBytes(spec, options, num_blocks),
                                                     "the inputs of an image tower"));
  step.device_memory_ = memory;
  return step;
}

template <typename T>
std::span<T> DeviceTowerStep::Take(int64_t count, int64_t& offset) {
  offset = end_;
  end_ += DevicePool::Padded(count * static_cast<int64_t>(sizeof(T)));
  CHECK_LE(end_, host_.size_bytes());
  return {reinterpret_cast<T*>(host_.As<std::byte>() + offset), static_cast<size_t>(count)};
}

void DeviceTowerStep::Send(DeviceStream& stream, const StepInput& input,
                           std::span<const int32_t> targets) {
  end_ = 0;
  const auto copy = [&](std::span<const int32_t> from, int64_t& offset) {
    std::ranges::copy(from, Take<int32_t>(std::ssize(from), offset).begin());
  };
  copy(input.positions, positions_);
  copy(input.rope_positions, rope_positions_);
  num_targets_ = std::ranges::count_if(targets, [](int32_t target) { return target >= 0; });
  const auto rows = Take<int32_t>(num_targets_, target_rows_);
  const auto places = Take<int32_t>(num_targets_, target_places_);
  for (size_t i = 0, next = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    rows[next] = targets[i];
    places[next++] = static_cast<int32_t>(i);
  }
  CHECK_EQ(input.num_groups, static_cast<int64_t>(num_groups_));
  for (size_t group = 0; group < num_groups_; ++group) {
    WriteGroup(input.SlicesOf(static_cast<int64_t>(group)), std::ssize(input.positions),
               groups_[group]);
  }
  stream.CopyToDevice(device_memory_, host_.data(), end_);
}

// Skips empty slices, which only make the numbers of slices of both groups equal.
void DeviceTowerStep::WriteGroup(std::span<const kernels::AttentionSlice> slices, int64_t num_rows,
                                 Group& group) {
  int64_t table_entries = 0, num_slices = 0;
  for (const kernels::AttentionSlice& slice : slices) {
    table_entries += CeilDiv(int64_t{slice.num_tokens}, int64_t{block_size_});
    num_slices += slice.num_tokens > 0;
  }
  int64_t* const slot = Take<int64_t>(num_rows, group.slots).data();
  const auto infos = Take<device::AttentionSliceInfo>(num_slices, group.slices);
  int32_t* const tables = Take<int32_t>(table_entries, group.tables).data();
  SliceWriter writer{block_size_, slot, tables, tables};
  auto info = infos.begin();
  for (const kernels::AttentionSlice& slice : slices) {
    if (slice.num_tokens > 0) *info++ = writer.Write(slice);
  }
  device::PlanAttention(limits_, infos, {}, group.plan, device::kSeesAllBehind);
  CHECK(group.plan.merges.empty());
  const std::vector<device::AttentionItem>& items = group.plan.items;
  std::ranges::copy(items, Take<device::AttentionItem>(std::ssize(items), group.items).begin());
}

device::AttentionArgs DeviceTowerStep::Attention(const program::Attend& /*op*/,
                                                 const AttentionSpec& /*spec*/,
                                                 int64_t group) const {
  const Group& mine = groups_[static_cast<size_t>(group)];
  device::AttentionArgs args = {};
  args.ahead = device::kSeesAllBehind;
  args.items = OnDevice<device::AttentionItem>(mine.items);
  args.num_items = static_cast<int>(mine.plan.items.size());
  args.num_wide_items = mine.plan.num_wide_items;
  args.slices = OnDevice<device::AttentionSliceInfo>(mine.slices);
  args.tables = OnDevice<int32_t>(mine.tables);
  return args;
}

}  // namespace sluice
