// Copies the part of an adapter's factors that a rank needs into a slot.
#pragma once

#include <functional>

#include "base/result.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"

namespace sluice {

// The factors of a module on this rank: A [rank, cols] and this rank's rows of B [rows, rank],
// contiguous, in the types of their tensors.
struct HeldFactors {
  const LoraModule& module;
  const LoraAdapter::Factors& factors;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
};

// Whether all copied elements of A and of B are finite.
struct FiniteFactors {
  bool a = true, b = true;
};

// Returns kInvalidData, naming the adapter's file and the tensor.
tl::unexpected<Error> NotFinite(const LoraAdapter& adapter, const std::string& tensor);

// Calls `copy` for each module of `layout` that the adapter changes and of which this rank has
// rows. Returns the first error of `copy`, or kInvalidData with the name of the first tensor that
// has a non-finite number. The adapter may have been opened with another rank's layout.
Status CopyHeldFactors(const LoraLayout& layout, const LoraAdapter& adapter,
                       const std::function<Result<FiniteFactors>(const HeldFactors&)>& copy);

}  // namespace sluice
