// What of an adapter's factors a rank holds, as it is copied into a slot.
#pragma once

#include <functional>

#include "base/result.h"
#include "models/lora_adapter.h"
#include "models/lora_layout.h"

namespace sluice {

// A [rank, cols] and this rank's rows of B [rows, rank] of a module, contiguous, in the types of
// their tensors.
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

// kInvalidData names the adapter's file and the tensor.
tl::unexpected<Error> NotFinite(const LoraAdapter& adapter, const std::string& tensor);

// Calls `copy` for each module of `layout` that the rank holds a part of and the adapter changes.
// kInvalidData names the first tensor with a number that is not finite; or the first error of
// `copy`. The adapter may have been opened with the layout of another rank.
Status CopyHeldFactors(const LoraLayout& layout, const LoraAdapter& adapter,
                       const std::function<Result<FiniteFactors>(const HeldFactors&)>& copy);

}  // namespace sluice
