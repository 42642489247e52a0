// Instruction sets that the CPU has and the operating system enables.
#pragma once

#include <string>

namespace sluice {

// A flag is set only if the CPU has the instructions, the operating system saves their registers
// and, for AMX, this process was granted their use. Flags of other architectures are never set.
struct CpuFeatures {
  std::string vendor;
  std::string model;
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx_vnni = false;     // 8-bit integer dot products in 256 bits
  bool avx512 = false;       // AVX-512 F, BW, DQ and VL
  bool avx512_vbmi = false;  // permutations of bytes
  bool avx512_vnni = false;  // 8-bit integer dot products
  bool avx512_bf16 = false;  // BF16 dot products
  bool amx_bf16 = false;     // AMX tiles with BF16 dot products
  bool amx_int8 = false;
  bool neon = false;          // Advanced SIMD, which every aarch64 CPU has
  bool neon_dotprod = false;  // 8-bit integer dot products
  bool neon_bf16 = false;     // BF16 dot products and matrix products
  bool neon_i8mm = false;     // 8-bit integer matrix products
};

// Detects features at the first call; later calls return the same. On CPUs with AMX, requests its
// use from the operating system. Thread safety: any thread.
const CpuFeatures& DetectCpuFeatures();

}  // namespace sluice
