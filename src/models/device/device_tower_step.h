// The inputs of the body of a tower on a device (device_tower.h): positions, slots of keys and
// values, attention's work items, destinations of results. They are laid out in one page-locked
// buffer and copied in a single transfer.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/device.h"
#include "kernels/cuda/attention_plan.h"
#include "models/device/device_step_view.h"
#include "models/model.h"
#include "models/tower/tower_spec.h"

namespace sluice {

// Ownership: owns the host buffer; the device buffer belongs to the caller and outlives it;
// move-only.
class DeviceTowerStep final : public DeviceStepView {
 public:
  // Returns the bytes of the largest step that the options allow, for the device and for the host
  // buffer. `num_blocks`: number of blocks of the tower's cache.
  static int64_t MaxBytes(const TowerSpec& spec, const ModelOptions& options, int64_t num_blocks);

  // `memory`: MaxBytes on the device, aligned to 256.
  static Result<DeviceTowerStep> Create(Device& device, const TowerSpec& spec,
                                        const ModelOptions& options, int64_t num_blocks,
                                        std::byte* memory);

  // Lays out the step and enqueues its copy. The stream must have completed the previous step.
  // Result row i goes to targets[i]; -1: it is dropped. REQUIRES: every slice is a whole sequence
  // (context 0).
  void Send(DeviceStream& stream, const StepInput& input, std::span<const int32_t> targets);

  // Inputs of the last step that was sent, on the device.
  const int32_t* tokens() const override { return nullptr; }
  const int32_t* positions() const override { return OnDevice<int32_t>(positions_); }
  const int32_t* rope_positions() const override { return OnDevice<int32_t>(rope_positions_); }
  const int32_t* logit_rows() const override { return nullptr; }
  const int64_t* slots(int64_t group) const override {
    return OnDevice<int64_t>(groups_[static_cast<size_t>(group)].slots);
  }
  // rows: indices of the destinations. places: indices of the results that go there.
  DeviceImageRows image_rows() const override {
    return {.rows = OnDevice<int32_t>(target_rows_),
            .places = OnDevice<int32_t>(target_places_),
            .count = num_targets_};
  }
  device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& spec,
                                  int64_t group) const override;

 private:
  // The slices of one cache group: whole images, or their windows.
  struct Group {
    device::AttentionPlan plan;
    int64_t slots = 0, slices = 0, tables = 0, items = 0;  // offsets
  };

  DeviceTowerStep() = default;
  static device::AttentionLimits LimitsOf(const TowerSpec& spec, const ModelOptions& options);
  static size_t NumGroups(const TowerSpec& spec) { return spec.window == 0 ? 1 : 2; }
  template <typename T>
  const T* OnDevice(int64_t offset) const {
    return reinterpret_cast<const T*>(device_memory_ + offset);
  }
  // Reserves the next `count` elements of the host buffer. `offset`: receives their position.
  template <typename T>
  std::span<T> Take(int64_t count, int64_t& offset);
  void WriteGroup(std::span<const kernels::AttentionSlice> slices, int64_t num_rows, Group& group);

  int block_size_ = 0;
  size_t num_groups_ = 1;
  device::AttentionLimits limits_;
  std::array<Group, 2> groups_;
  DeviceBuffer host_;
  std::byte* device_memory_ = nullptr;
  int64_t end_ = 0;
  int64_t positions_ = 0, rope_positions_ = 0, target_rows_ = 0, target_places_ = 0;
  int64_t num_targets_ = 0;
};

}  // namespace sluice
