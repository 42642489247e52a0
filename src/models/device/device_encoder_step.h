// The inputs of an encoder's step on a device: tokens, positions, token types, slots of keys and
// values, and attention's work items. They are laid out in one page-locked buffer and copied in a
// single transfer.
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

// Ownership: owns the host buffer; the device buffer belongs to the caller and outlives it;
// move-only.
class DeviceEncoderStep final : public DeviceStepView {
 public:
  // Returns the bytes of the largest step that the options allow, for the device and for the host
  // buffer.
  static int64_t MaxBytes(const EncoderSpec& spec, const ModelOptions& options);

  // Creates a step whose inputs are at `memory`: MaxBytes bytes on the device, aligned to 256.
  static Result<DeviceEncoderStep> Create(Device& device, const EncoderSpec& spec,
                                          const ModelOptions& options, std::byte* memory);

  // Lays out the step in the host buffer and enqueues its copy. The stream must have completed the
  // previous step. Allocates nothing. REQUIRES: every slice is a whole sequence (context 0).
  void Send(DeviceStream& stream, const StepInput& input);

  // The members below are inputs of the last step that was sent; they are on the device.
  const int32_t* tokens() const override { return OnDevice<int32_t>(tokens_); }
  const int32_t* positions() const override { return OnDevice<int32_t>(positions_); }
  const int32_t* types() const override {  // null: all tokens have type 0
    return has_types_ ? OnDevice<int32_t>(types_) : nullptr;
  }
  const int32_t* logit_rows() const override { return OnDevice<int32_t>(logit_rows_); }
  const int64_t* slots(int64_t /*group*/) const override { return OnDevice<int64_t>(slots_); }
  // Sets the work items, slices and tables of an attention layer; the caller sets the other
  // members.
  device::AttentionArgs Attention(const program::Attend& op, const AttentionSpec& spec,
                                  int64_t group) const override;

 private:
  // Attention's work items for all layers with the same span.
  struct SpanPlan {
    AttentionSpan span;
    int32_t ahead = device::kSeesAllBehind;
    device::AttentionPlan plan;
    int64_t items = 0;  // offset of the items in the buffer
  };

  DeviceEncoderStep() = default;
  template <typename T>
  const T* OnDevice(int64_t offset) const {
    return reinterpret_cast<const T*>(device_memory_ + offset);
  }
  // Reserves the next `count` elements of the host buffer. `offset`: receives their position.
  template <typename T>
  std::span<T> Take(int64_t count, int64_t& offset);
  void WriteTypes(const StepInput& input);
  // Writes slots and slices, then the block tables of all slices.
  void WriteSlices(const StepInput& input);
  void WritePlans(int64_t num_slices);

  int block_size_ = 0;
  int64_t num_types_ = 0;
  device::AttentionLimits limits_;
  std::vector<SpanPlan> plans_;  // The first plan has no window; the others are for windows.
  DeviceBuffer host_;
  std::byte* device_memory_ = nullptr;
  int64_t end_ = 0;
  bool has_types_ = false;
  int64_t tokens_ = 0, positions_ = 0, types_ = 0, logit_rows_ = 0, slots_ = 0, slices_ = 0,
          tables_ = 0;
};

}  // namespace sluice
