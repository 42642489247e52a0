// Reads a single number of a stored tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/element_type.h"

namespace sluice {

// Returns element `index` of an array of `type`: F32, F16, BF16, F8_E4M3, I8, or F8_E8M0 and U8,
// which both store exponents of powers of two. Exact. `data` need not be aligned.
float StoredNumber(const std::byte* data, ElementType type, int64_t index);

}  // namespace sluice
