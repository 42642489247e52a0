// Philox 4x32-10: random numbers as a stateless function of (key, counter). The numbers of a seeded
// request depend only on its seed and positions, whatever else is sampled. Source: Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

inline std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Returns a uniform number in [0, 1) with 53 bits, for the output token at `position` under `seed`.
inline double UniformAt(uint64_t seed, uint64_t position) {
  const std::array<uint32_t, 4> bits =
      Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

}  // namespace sluice
