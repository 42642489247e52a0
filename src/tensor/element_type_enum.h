// The types in which numbers are stored. Also included by every CUDA source, so it includes nothing
// but <cstdint>.
#pragma once

#include <stdint.h>

namespace sluice {

// Names and widths as in the safetensors format.
enum class ElementType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF8E4M3,  // E4M3FN: no infinities, NaN = 0x7F and 0xFF
  kF8E5M2,
  kF8E8M0,  // a power of two: 2^(byte - 127), NaN = 0xFF
  kF4E2M1,  // two per byte, the even index in the low nibble
  kInt4,    // codes 0 to 15 with a zero point; not a safetensors type (tensor/stored_matrix.h)
};

}  // namespace sluice
