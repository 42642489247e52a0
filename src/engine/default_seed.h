// Seeds of requests that specify none.
#pragma once

#include <cstdint>
#include <random>

namespace sluice {

inline uint64_t RandomSeed() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// The seed of request `number`, derived from the engine's seed.
inline uint64_t DefaultSeed(uint64_t base_seed, uint64_t number) {
  const auto mix = [](uint64_t value) {  // splitmix64
    value += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  };
  return mix(base_seed ^ mix(number));
}

}  // namespace sluice
