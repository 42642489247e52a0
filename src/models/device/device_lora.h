// The slots of LoRA adapters in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "device/device.h"
#include "device/uploader.h"
#include "kernels/cuda/device_kernels.h"
#include "models/lora_layout.h"
#include "models/lora_store.h"

namespace sluice {

// The slots of one rank: A and B of each module at the offsets of the layout, in the format of
// AddLoraArgs. The ranks and scales of each slot's modules follow after all slots.
//
// Thread safety: Fill may be called by any thread; it waits for steps that use the slot. Other
// non-const functions are called by the computing thread. Ownership: the device and the memory
// outlive Close().
class DeviceLoraSlots final : public LoraStore {
 public:
  // Returns the bytes of device memory that Create needs.
  static int64_t Bytes(const LoraLayout& layout);
  // Creates the slots, all empty. `memory`: Bytes(layout) bytes, aligned to 256 bytes.
  static Result<std::shared_ptr<DeviceLoraSlots>> Create(Device& device, LoraLayout layout,
                                                         std::byte* memory);

  const LoraLayout& layout() const override { return layout_; }
  // As in LoraStore; kUnavailable after Close().
  Status Fill(int slot, const LoraAdapter& adapter) override;

  // BeginUse marks the slots as used by a step; EndUse ends this use. -1 is ignored.
  void BeginUse(std::span<const int32_t> slots) { CountUses(slots, 1); }
  void EndUse(std::span<const int32_t> slots) { CountUses(slots, -1); }
  // Waits for a Fill in progress and frees device resources; any later Fill fails.
  void Close();

  // Returns whether the slot's adapter changes the layer. For the first expert's layer: whether it
  // changes any expert. REQUIRES: a step uses the slot.
  bool Changes(int slot, int layer) const {
    return changes_[static_cast<size_t>(slot) * layout_.layers.size() + static_cast<size_t>(layer)];
  }
  // Returns the kernel's arguments for the layer: its modules, the strides between adapters and
  // experts, cols and max_rank. The caller sets the other members. The arguments for the first
  // expert's layer apply to all experts.
  device::AddLoraArgs ArgsOf(int layer) const;

 private:
  DeviceLoraSlots(LoraLayout layout, std::byte* memory);
  void CountUses(std::span<const int32_t> slots, int count);
  Status Upload(int slot, const LoraAdapter& adapter, Uploader& uploader);
  device::LoraFactor* FactorsOf(int slot) const;

  const LoraLayout layout_;
  std::byte* const memory_;
  // For each module, the layer whose entry in changes_ covers the module (for experts, the first
  // expert's layer); -1: none.
  std::vector<int> layer_of_;
  std::vector<uint8_t> changes_;  // [slots, layers]

  Mutex filling_;
  std::optional<Uploader> uploader_ GUARDED_BY(filling_);  // nullopt after Close()

  Mutex mutex_;
  CondVar changed_;
  std::vector<int> uses_ GUARDED_BY(mutex_);  // by slot: number of steps that use the slot
  bool is_closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
