// Figures of accelerators, to calculate what fits and how fast it can be.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// Figures are per device: memory as programs see it, speeds from data sheets without sparsity.
// Measured speeds are lower: by 10-20 % for bandwidth, by 20-40 % for arithmetic.
struct Accelerator {
  std::string_view name;   // "H200"
  std::string_view names;  // other spellings in recipes, separated by |
  int64_t memory_bytes = 0;
  int64_t system_bytes = 0;  // part of it used by an operating system that shares the memory
  double bytes_per_second = 0;
  // Between devices of a machine, in one direction (NVLink, Infinity Fabric); for a GB10, which is
  // the only device of its machine, over its network.
  double link_bytes_per_second = 0;
  double bf16_flops = 0;                // BF16 operations per second
  double fp8_flops = 0;                 // 0: no FP8 units; weights are expanded to BF16
  double fp4_flops = 0;                 // 0: no FP4 units
  std::string_view compute_capability;  // as printed by nvidia-smi; "" if there is none
};

// In descending order of use in recipes.
std::span<const Accelerator> Accelerators();

// Finds an accelerator by a name or another spelling, ignoring case; null if unknown.
const Accelerator* FindAccelerator(std::string_view name);

}  // namespace sluice
