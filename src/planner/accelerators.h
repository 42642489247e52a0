// Data-sheet figures of accelerators, used to calculate what fits and how fast it can be.
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
  int64_t system_bytes = 0;  // the part of it that an operating system uses if it shares the memory
  double bytes_per_second = 0;
  // Between the devices of one machine, in one direction (NVLink, Infinity Fabric). A GB10 is the
  // only device of its machine, so this is the bandwidth of its network.
  double link_bytes_per_second = 0;
  double bf16_flops = 0;                // BF16 operations per second
  double fp8_flops = 0;                 // 0: no FP8 units; weights are expanded to BF16
  double fp4_flops = 0;                 // 0: no FP4 units
  std::string_view compute_capability;  // as printed by nvidia-smi; "" if there is none
};

// Returns all accelerators, those that recipes use most first.
std::span<const Accelerator> Accelerators();

// Finds an accelerator by its name or another spelling, ignoring case. Returns null if unknown.
const Accelerator* FindAccelerator(std::string_view name);

}  // namespace sluice
