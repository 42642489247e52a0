// The slots of adapters in a device's memory.
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

// The slots of one rank: A and B of the modules at their places in the layout, as AddLoraArgs wants
// them, and after all slots the ranks and scales of every slot's modules.
//
// Thread safety: Fill by any thread; it waits for the steps that use the slot. What is not const
// besides, by the thread that computes. Ownership: the device and the memory outlive Close().
class DeviceLoraSlots final : public LoraStore {
 public:
  // The device memory that it takes.
  static int64_t Bytes(const LoraLayout& layout);
  // `memory`: of Bytes(layout), aligned to 256 bytes. Every slot is empty.
  static Result<std::shared_ptr<DeviceLoraSlots>> Create(Device& device, LoraLayout layout,
                                                         std::byte* memory);

  const LoraLayout& layout() const override { return layout_; }
  // kUnavailable after Close().
  Status Fill(int slot, const LoraAdapter& adapter) override;

  // Steps begin and end that use the slots, of which -1 is none.
  void BeginUse(std::span<const int32_t> slots) { CountUses(slots, 1); }
  void EndUse(std::span<const int32_t> slots) { CountUses(slots, -1); }
  // Waits for a Fill under way and gives back what is the device's; every other one fails.
  void Close();

  // Whether the adapter in the slot changes the layer, or any expert of those whose first it is.
  // REQUIRES: a step uses the slot.
  bool Changes(int slot, int layer) const {
    return changes_[static_cast<size_t>(slot) * layout_.layers.size() + static_cast<size_t>(layer)];
  }
  // The modules of the layer, or of the experts whose first it is, and how far apart adapters and
  // experts are; cols and max_rank. The rest is left to the caller.
  device::AddLoraArgs ArgsOf(int layer) const;

 private:
  DeviceLoraSlots(LoraLayout layout, std::byte* memory);
  void CountUses(std::span<const int32_t> slots, int count);
  Status Upload(int slot, const LoraAdapter& adapter, Uploader& uploader);
  device::LoraFactor* FactorsOf(int slot) const;

  const LoraLayout layout_;
  std::byte* const memory_;
  // By module: the first layer whose changes its own are, -1 for one that no layer has.
  std::vector<int> layer_of_;
  std::vector<uint8_t> changes_;  // [slots, layers]

  Mutex filling_;
  std::optional<Uploader> uploader_ GUARDED_BY(filling_);  // none: closed

  Mutex mutex_;
  CondVar changed_;
  std::vector<int> uses_ GUARDED_BY(mutex_);  // by slot, of steps
  bool is_closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
