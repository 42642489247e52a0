// What the sources of this folder share. Each is compiled once per vector instruction set, with
// SLUICE_ISA naming its namespace, and defines the vector versions of an operator's functions
// (kernels/vector_kernel.h).
//
// Nothing of the standard library is used here, nor any header with inline functions of external
// linkage: compiled with these instructions, they could be taken by the linker for the whole
// program.
#pragma once

#include SLUICE_SIMD  // kernels/cpu/<isa>/simd.h

namespace sluice::kernels {
namespace {

inline void StoreAs(void* y, int64_t index, Floats value, Mask mask, bool bf16) {
  if (bf16)
    StoreBf16(static_cast<uint16_t*>(y) + index, value, mask);
  else
    Store(static_cast<float*>(y) + index, value, mask);
}

}  // namespace
}  // namespace sluice::kernels
