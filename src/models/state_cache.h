// The memory of the states that sequences have in addition to KV blocks (MixerSpec,
// CompressedSpec). Each slot contains the states of one sequence in all layers of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "models/decoder_spec.h"
#include "tensor/buffer.h"

namespace sluice {

// Offsets of the layers' states in a slot.
class StateLayout {
 public:
  // Returns the layout for the layers of a rank's share of a model.
  static StateLayout For(const DecoderSpec& share);

  // Returns the bytes of a slot; 0 if no layer has a state.
  int64_t slot_bytes() const { return slot_numbers_ * int64_t{sizeof(float)}; }

 private:
  friend class StateCache;
  // Offsets in a slot, in F32 elements; -1: the layer has no such state.
  struct Place {
    int64_t tail = -1, matrix = -1;
  };
  std::vector<Place> places_;  // by layer
  int64_t slot_numbers_ = 0;
};

// Thread safety: like plain memory. Ownership: owns the memory, unless made by Wrap; move-only.
class StateCache {
 public:
  StateCache() = default;
  // Allocates the states. kResourceExhausted if the system refuses to provide the memory. A layout
  // without states takes no memory.
  static Result<StateCache> Allocate(const StateLayout& layout, int64_t num_slots);
  // Uses the caller's memory, such as a device's, for the states: num_slots * layout.slot_bytes()
  // bytes, which outlive the cache. Clear and Copy work only in the host's memory.
  static StateCache Wrap(const StateLayout& layout, int64_t num_slots, void* memory);

  int64_t num_slots() const { return num_slots_; }
  int64_t slot_bytes() const { return layout_.slot_bytes(); }
  // Returns the number of F32 elements from one slot to the next.
  int64_t slot_numbers() const { return layout_.slot_numbers_; }
  // Returns all states of a slot, slot_bytes() bytes.
  std::byte* slot(int32_t slot) const { return reinterpret_cast<std::byte*>(SlotAt(slot)); }
  // Returns the last inputs of a layer's convolution, F32 [conv_width - 1, channels], oldest first.
  // In a layer with compressed entries, returns the compressors' states (LatentSpec::StateNumbers).
  float* tail(int64_t layer, int32_t slot) const {
    return SlotAt(slot) + layout_.places_[static_cast<size_t>(layer)].tail;
  }
  // Returns the state matrices of a layer's heads, F32 [num_heads, key_dim, head_dim].
  float* matrix(int64_t layer, int32_t slot) const {
    return SlotAt(slot) + layout_.places_[static_cast<size_t>(layer)].matrix;
  }
  void Clear(int32_t slot) const;
  void Copy(int32_t from, int32_t to) const;

 private:
  float* SlotAt(int32_t slot) const {
    const void* const memory = outside_ != nullptr ? outside_ : memory_.data();
    return static_cast<float*>(const_cast<void*>(memory)) + slot * layout_.slot_numbers_;
  }

  StateLayout layout_;
  int64_t num_slots_ = 0;
  Buffer memory_;
  void* outside_ = nullptr;  // the caller's memory, used instead of the cache's own
};

}  // namespace sluice
