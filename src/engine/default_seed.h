// Seeds of requests that specify no seed.
#pragma once

#include <cstdint>
#include <random>

#include "kernels/random_bits.h"

namespace sluice {

inline uint64_t RandomSeed() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// Returns the seed of request `number`, derived from the engine's seed.
inline uint64_t DefaultSeed(uint64_t base_seed, uint64_t number) {
  return kernels::MixBits(base_seed ^ kernels::MixBits(number));
}

}  // namespace sluice
