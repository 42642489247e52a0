// What of an adapter's factors a rank holds, as it is copied into a slot.
#pragma once

#include <functional>

#include "base/result.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"

namespace sluice {

// Of a module: A [rank, cols], and of B [rows, rank] the rows that the module's rank computes, one
// behind the other, in the types of their tensors.
struct HeldFactors {
  const LoraModule& module;
  const LoraAdapter::Factors& factors;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
};

// Whether the numbers that were copied are finite.
struct FiniteFactors {
  bool a = true, b = true;
};

// Calls `copy` for each module of `layout` that the rank holds a part of and the adapter changes.
// kInvalidData names the first tensor with a number that is not finite; or the first error of
// `copy`. The adapter may have been opened with the layout of another rank.
Status CopyHeldFactors(const LoraLayout& layout, const LoraAdapter& adapter,
                       const std::function<Result<FiniteFactors>(const HeldFactors&)>& copy);

}  // namespace sluice
