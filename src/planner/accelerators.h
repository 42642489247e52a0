// Data-sheet figures of accelerators, used to calculate what fits into memory and how fast it can
// run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// Figures of one device: memory that programs can see, and speeds from data sheets, without
// sparsity. Measured speeds are lower: by 10-20 % for bandwidth, by 20-40 % for arithmetic.
struct Accelerator {
  std::string_view name;   // "H200"
  std::string_view names;  // other spellings in recipes, separated by |
  int64_t memory_bytes = 0;
  // The part of memory_bytes that the operating system uses, if it shares the memory.
  int64_t system_bytes = 0;
  double bytes_per_second = 0;
  // Bandwidth between the devices of one machine, in one direction (NVLink, Infinity Fabric). A
  // GB10 is the only device of its machine, so its figure is the bandwidth of its network.
  double link_bytes_per_second = 0;
  double bf16_flops = 0;                // BF16 operations per second
  double fp8_flops = 0;                 // 0: no FP8 units; weights are expanded to BF16
  double fp4_flops = 0;                 // 0: no FP4 units
  std::string_view compute_capability;  // as printed by nvidia-smi; "" if there is none
};

// Returns all accelerators, sorted by how often recipes use them, most frequent first.
std::span<const Accelerator> Accelerators();

// Finds an accelerator by its name or another spelling, ignoring case. Returns null if unknown.
const Accelerator* FindAccelerator(std::string_view name);

}  // namespace sluice
