// Interface for loading factors of adapters into the slots of one rank, or of all ranks.
#pragma once

#include "base/result.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"

namespace sluice {

// Thread safety: any thread may fill a slot while steps use other slots, but only one thread at a
// time may fill the same slot.
class LoraStore {
 public:
  virtual ~LoraStore() = default;

  // Returns the layout on the calling rank. It lists the modules of the whole model.
  virtual const LoraLayout& layout() const = 0;
  int num_slots() const { return layout().options.num_slots; }

  // Copies the adapter's factors into the slot; each rank copies the factors that it needs. On
  // failure the slot's content is undefined: kInvalidData for non-finite elements; errors of other
  // ranks name the rank. REQUIRES: `adapter` was opened with this layout; no step uses the slot.
  virtual Status Fill(int slot, const LoraAdapter& adapter) = 0;
};

}  // namespace sluice
