// AllLanes replaces the mask for whole vectors. On AVX2, stores with a mask are many times slower
// than stores without one.
#pragma once

#include <stdint.h>

namespace sluice::kernels {
namespace {

struct AllLanes {};
inline Floats Select(AllLanes, Floats yes, Floats /*no*/) {
  return yes;
}
inline Floats Load(const float* p, AllLanes) {
  return Load(p);
}
inline Floats LoadBf16(const uint16_t* p, AllLanes) {
  return LoadBf16(p);
}
inline Words LoadWords(const void* p, AllLanes) {
  return LoadWords(p);
}
inline void Store(float* p, Floats v, AllLanes) {
  Store(p, v);
}
inline void StoreBf16(uint16_t* p, Floats v, AllLanes) {
  StoreBf16(p, v);
}

// Calls body(lanes) with AllLanes if `count` is at least kLanes, else with a Mask of the first
// `count` lanes.
template <typename Body>
__attribute__((always_inline)) inline void WithLanes(int64_t count, const Body& body) {
  if (count >= kLanes)
    body(AllLanes());
  else
    body(FirstLanes(count));
}

}  // namespace
}  // namespace sluice::kernels
