// What accelerators have, for working out what fits and how fast it can be.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// Figures are those of one device: memory as programs see it, speeds from data sheets without
// sparsity. What is measured lies below: 10-20 % for bandwidth, 20-40 % for arithmetic.
struct Accelerator {
  std::string_view name;   // "H200"
  std::string_view names;  // further spellings in recipes, separated by |
  int64_t memory_bytes = 0;
  int64_t system_bytes = 0;  // of it, taken by an operating system that shares the memory
  double bytes_per_second = 0;
  // Between devices of a machine, in one direction (NVLink, Infinity Fabric); of a GB10, which is
  // alone in its machine, over its network.
  double link_bytes_per_second = 0;
  double bf16_flops = 0;                // per second
  double fp8_flops = 0;                 // 0: no such units; weights are expanded to BF16
  double fp4_flops = 0;                 // 0: likewise
  std::string_view compute_capability;  // as nvidia-smi prints it; "" where there is none
};

// In falling order of what they are used for in recipes.
std::span<const Accelerator> Accelerators();

// By a name or a further spelling, case aside; null if unknown.
const Accelerator* FindAccelerator(std::string_view name);

}  // namespace sluice
