// Definitions that the sources of this folder share. Each source is compiled once per vector
// instruction set, with SLUICE_ISA naming its namespace, and defines the vector versions of an
// operator's functions (kernels/vector_kernel.h).
//
// The sources must not use the standard library, nor any header that defines inline functions with
// external linkage. Otherwise, the linker might choose a copy that contains these instructions, and
// the whole program would need a CPU that has them.
#pragma once

#include SLUICE_SIMD  // kernels/cpu/<isa>/simd.h

#include "kernels/cpu/all_lanes_inl.h"

namespace sluice::kernels {
namespace {

// Calls body(i, lanes) for each vector of `count` elements, where i is its first element. `lanes`
// is AllLanes for whole vectors, and a Mask for a partial last one.
template <typename Body>
inline void ForEachVector(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, AllLanes());
  if (i < count) body(i, FirstLanes(count - i));
}

template <typename Lanes>
inline void StoreAs(void* y, int64_t index, Floats value, Lanes lanes, bool bf16) {
  if (bf16)
    StoreBf16(static_cast<uint16_t*>(y) + index, value, lanes);
  else
    Store(static_cast<float*>(y) + index, value, lanes);
}

}  // namespace
}  // namespace sluice::kernels
