// The inputs of an encoder's step on a device: tokens, positions, token types, slots of keys and
// values, the division of attention into work items. All of it is laid out in one page-locked
// buffer and copied at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "kernels/cuda/attention_plan.h"
#include "models/device/device_step_view.h"
#include "models/encoder/encoder_spec.h"
#include "models/model.h"

namespace sluice {

// Ownership: owns the host's buffer; the device's is the caller's and outlives it; move-only.
class DeviceEncoderStep final : public DeviceStepView {
 public:
  // Bytes of the largest step within the options, on the device and of the host's buffer.
  static int64_t MaxBytes(const EncoderSpec& spec, const ModelOptions& options);

  // `memory`: MaxBytes on the device, aligned to 256.
  static Result<DeviceEncoderStep> Create(Device& device, const EncoderSpec& spec,
                                          const ModelOptions& options, std::byte* memory);

  // Lays out the step and enqueues its copy. The stream must have passed what was enqueued for the
  // step before. Allocates nothing. REQUIRES: every slice is a whole sequence (context 0).
  void Send(DeviceStream& stream, const StepInput& input);

  // Inputs of the step that was sent last, on the device.
  const int32_t* tokens() const override { return OnDevice<int32_t>(tokens_); }
  const int32_t* positions() const override { return OnDevice<int32_t>(positions_); }
  const int32_t* types() const override {  // null: all tokens are of type 0
    return has_types_ ? OnDevice<int32_t>(types_) : nullptr;
  }
  const int32_t* logit_rows() const override { return OnDevice<int32_t>(logit_rows_); }
  const int64_t* slots(int64_t /*group*/) const override { return OnDevice<int64_t>(slots_); }
  // The items, slices and tables of layers with or without a window; the rest is left to the
  // caller.
  device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& spec,
                                  int64_t group) const override;

 private:
  // The work items of layers that see so much.
  struct SpanPlan {
    AttentionSpan span;
    int32_t ahead = device::kSeesAllBehind;
    device::AttentionPlan plan;
    int64_t items = 0;  // offset
  };

  DeviceEncoderStep() = default;
  template <typename T>
  const T* OnDevice(int64_t offset) const {
    return reinterpret_cast<const T*>(device_memory_ + offset);
  }
  // The next `count` elements of the host's buffer, and where they begin.
  template <typename T>
  std::span<T> Take(int64_t count, int64_t& offset);
  void WriteTypes(const StepInput& input);
  // Slots, slices, and their tables one after the other.
  void WriteSlices(const StepInput& input);
  void WritePlans(int64_t num_slices);

  int block_size_ = 0;
  int64_t num_types_ = 0;
  device::AttentionLimits limits_;
  std::vector<SpanPlan> plans_;  // that of all positions, then that of windows
  DeviceBuffer host_;
  std::byte* device_memory_ = nullptr;
  int64_t end_ = 0;
  bool has_types_ = false;
  int64_t tokens_ = 0, positions_ = 0, types_ = 0, logit_rows_ = 0, slots_ = 0, slices_ = 0,
          tables_ = 0;
};

}  // namespace sluice
