// The types in which numbers are stored. Read by the CUDA compiler too, in every kernel's file:
// free of other includes.
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
  kF4E2M1,  // two in a byte, the even index in the low nibble
  kInt4,    // codes from 0 to 15 with a zero point; no type of safetensors (tensor/stored_matrix.h)
};

}  // namespace sluice
