#include "models/device/device_lora.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/device_pool.h"
#include "kernels/lora.h"
#include "models/lora_packing.h"

namespace sluice {
namespace {

constexpr int64_t kUploadBytes = int64_t{4} << 20;

int64_t FactorBytes(const LoraLayout& layout) {
  return layout.options.num_slots * static_cast<int64_t>(layout.modules.size()) *
         static_cast<int64_t>(sizeof(device::LoraFactor));
}

// If `layer` is the first of the layers that one product of experts computes, returns their number;
// else 1.
int64_t ExpertsOf(const LoraLayout& layout, int layer) {
  const size_t module = layout.layers[static_cast<size_t>(layer)].first;
  for (const LoraExperts& experts : layout.experts) {
    if (experts.first_module == module) return experts.num_experts;
  }
  return 1;
}

}  // namespace

int64_t DeviceLoraSlots::Bytes(const LoraLayout& layout) {
  return DevicePool::Padded(layout.SlotBytes()) + DevicePool::Padded(FactorBytes(layout));
}

DeviceLoraSlots::DeviceLoraSlots(LoraLayout layout, std::byte* memory)
    : layout_(std::move(layout)),
      memory_(memory),
      layer_of_(layout_.modules.size(), -1),
      changes_(static_cast<size_t>(num_slots()) * layout_.layers.size()),
      uses_(static_cast<size_t>(num_slots())) {
  const auto num_layers = static_cast<int>(layout_.layers.size());
  int64_t experts = 1;
  for (int layer = 0, first = 0; layer < num_layers; ++layer) {
    if (layer == first + experts || layer == 0) {
      first = layer;
      experts = ExpertsOf(layout_, layer);
    }
    const LoraLayer& part = layout_.layers[static_cast<size_t>(layer)];
    std::fill_n(layer_of_.begin() + static_cast<int64_t>(part.first), part.count, first);
  }
}

Result<std::shared_ptr<DeviceLoraSlots>> DeviceLoraSlots::Create(Device& device, LoraLayout layout,
                                                                 std::byte* memory) {
  CHECK(layout.options.type == ElementType::kBF16);
  std::shared_ptr<DeviceLoraSlots> slots(new DeviceLoraSlots(std::move(layout), memory));
  const MutexLock lock(slots->filling_);
  ASSIGN_OR_RETURN(slots->uploader_, Uploader::Create(device, kUploadBytes));
  const auto zeros = [](std::byte* chunk, int64_t, int64_t size) -> Status {
    std::memset(chunk, 0, static_cast<size_t>(size));
    return {};
  };
  RETURN_IF_ERROR(slots->uploader_->Fill(slots->FactorsOf(0), FactorBytes(slots->layout_), zeros));
  RETURN_IF_ERROR(slots->uploader_->Finish());
  return slots;
}

device::LoraFactor* DeviceLoraSlots::FactorsOf(int slot) const {
  std::byte* const factors = memory_ + DevicePool::Padded(layout_.SlotBytes());
  return reinterpret_cast<device::LoraFactor*>(factors) +
         static_cast<size_t>(slot) * layout_.modules.size();
}

Status DeviceLoraSlots::Fill(int slot, const LoraAdapter& adapter) {
  // Waits until no step uses the slot. No new step can begin to use it meanwhile.
  {
    MutexLock lock(mutex_);
    while (uses_[static_cast<size_t>(slot)] > 0 && !is_closed_) changed_.Wait(lock);
  }
  const MutexLock filling(filling_);
  if (!uploader_)
    return Fail(ErrorCode::kUnavailable, "the model is being destroyed: no adapter is loaded");
  Status status = Upload(slot, adapter, *uploader_);
  // Finishes the copies even after an error, because they use the uploader's memory.
  Status arrived = uploader_->Finish();
  return status ? arrived : status;
}

Status DeviceLoraSlots::Upload(int slot, const LoraAdapter& adapter, Uploader& uploader) {
  std::vector<std::byte> packed;
  uint8_t* const changes = changes_.data() + static_cast<size_t>(slot) * layout_.layers.size();
  std::fill_n(changes, layout_.layers.size(), uint8_t{0});
  std::vector<device::LoraFactor> all(layout_.modules.size(), device::LoraFactor{0, 0});
  std::byte* const memory = memory_ + slot * layout_.slot_bytes;
  constexpr ElementType kType = ElementType::kBF16;
  const auto send = [&](void* to, const void* from, int64_t bytes) {
    return uploader.Fill(to, bytes, [&](std::byte* chunk, int64_t offset, int64_t size) -> Status {
      std::memcpy(chunk, static_cast<const std::byte*>(from) + offset, static_cast<size_t>(size));
      return {};
    });
  };
  RETURN_IF_ERROR(
      CopyHeldFactors(layout_, adapter, [&](const HeldFactors& held) -> Result<FiniteFactors> {
        const LoraModule& module = held.module;
        const LoraAdapter::Factors& factors = held.factors;
        const int64_t rank = factors.rank, rows = module.held_rows();
        const int64_t a_bytes = kernels::LoraTableBytes(rank, module.cols, kType);
        const int64_t b_bytes = kernels::LoraTableBytes(rank, rows, kType);
        packed.resize(static_cast<size_t>(std::max(a_bytes, b_bytes)));
        const auto pack_a = module.is_embedding ? kernels::PackLoraTable : kernels::PackLoraRows;
        FiniteFactors finite;
        finite.a = pack_a(held.a, factors.a->type, rank, module.cols, kType, packed.data());
        RETURN_IF_ERROR(send(memory + module.a_offset, packed.data(), a_bytes));
        finite.b =
            kernels::PackLoraTable(held.b, factors.b->type, rows, rank, kType, packed.data());
        RETURN_IF_ERROR(send(memory + module.b_offset, packed.data(), b_bytes));
        const auto number = static_cast<size_t>(&module - layout_.modules.data());
        all[number] = {static_cast<int32_t>(rank), factors.scale};
        changes[layer_of_[number]] = 1;
        return finite;
      }));
  return send(FactorsOf(slot), all.data(),
              static_cast<int64_t>(all.size() * sizeof(device::LoraFactor)));
}

void DeviceLoraSlots::CountUses(std::span<const int32_t> slots, int count) {
  if (slots.empty()) return;
  const MutexLock lock(mutex_);
  for (const int32_t slot : slots) {
    if (slot >= 0) uses_[static_cast<size_t>(slot)] += count;
  }
  if (count < 0) changed_.NotifyAll();
}

void DeviceLoraSlots::Close() {
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
  }
  changed_.NotifyAll();
  const MutexLock filling(filling_);
  uploader_.reset();
}

device::AddLoraArgs DeviceLoraSlots::ArgsOf(int layer) const {
  const LoraLayer& part = layout_.layers[static_cast<size_t>(layer)];
  CHECK_LE(part.count, static_cast<size_t>(device::kMostLoraModules));
  device::AddLoraArgs args = {};
  args.scale = 1;
  args.num_modules = static_cast<int>(part.count);
  const auto address = [&](int64_t offset) {
    return reinterpret_cast<const uint16_t*>(memory_ + offset);
  };
  for (size_t i = 0; i < part.count; ++i) {
    const LoraModule& module = layout_.modules[part.first + i];
    args.cols = module.cols;
    args.modules[i] = {.a = address(module.a_offset),
                       .b = address(module.b_offset),
                       .factor = FactorsOf(0) + part.first + i,
                       .first_col = module.first_col,
                       .rows = module.held_rows()};
  }
  args.slot_bytes = layout_.slot_bytes;
  args.slot_factors = static_cast<int64_t>(layout_.modules.size());
  args.max_rank = static_cast<int>(layout_.options.max_rank);
  const int64_t experts = ExpertsOf(layout_, layer);
  const auto first_of = [&](int64_t expert) {
    return layout_.layers[static_cast<size_t>(layer + expert)].first;
  };
  const auto place_of = [&](int64_t expert) { return layout_.modules[first_of(expert)].a_offset; };
  for (int64_t expert = 1; expert < experts; ++expert) {
    if (expert == 1) {
      args.expert_bytes = place_of(1) - place_of(0);
      args.expert_factors = static_cast<int64_t>(first_of(1) - first_of(0));
    }
    CHECK_EQ(place_of(expert), place_of(0) + expert * args.expert_bytes);
  }
  return args;
}

}  // namespace sluice
