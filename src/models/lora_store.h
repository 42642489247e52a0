// Where the factors of adapters are put: the slots of one rank, or of all.
#pragma once

#include "base/result.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"

namespace sluice {

// Thread safety: a slot may be filled by any thread while steps use others, not by two threads.
class LoraStore {
 public:
  virtual ~LoraStore() = default;

  // The layout of the calling rank; the modules of the whole model.
  virtual const LoraLayout& layout() const = 0;
  int num_slots() const { return layout().options.num_slots; }

  // Copies what each rank computes of the adapter's factors into the slot, whose content is
  // undefined if that fails: kInvalidData for numbers that are not finite; errors of other ranks
  // name them. REQUIRES: opened with this layout; no step uses the slot.
  virtual Status Fill(int slot, const LoraAdapter& adapter) = 0;
};

}  // namespace sluice
