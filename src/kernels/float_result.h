// Stores results that an operator computes in F32, as F32 or as BF16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/bfloat16.h"
#include "tensor/element_type.h"

namespace sluice::kernels {

// Returns whether results of `type` are BF16. REQUIRES: `type` is F32 or BF16.
inline bool IsBf16Result(ElementType type) {
  CHECK(type == ElementType::kF32 || type == ElementType::kBF16, "a result is F32 or BF16, not {}",
        ElementTypeName(type));
  return type == ElementType::kBF16;
}

inline void* ResultAt(void* y, int64_t index, bool bf16) {
  return static_cast<std::byte*>(y) + index * (bf16 ? 2 : 4);
}

// Stores y[index] = value, rounded if y is BF16.
inline void StoreResult(void* y, int64_t index, float value, bool bf16) {
  if (bf16)
    static_cast<BFloat16*>(y)[index] = ToBFloat16(value);
  else
    static_cast<float*>(y)[index] = value;
}

}  // namespace sluice::kernels
