// Selection of the kernels' instruction set: the best available, or one that is forced.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::kernels {

enum class Isa {
  kReference,
  kAvx2,
  kAvx2Vnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAmx,
  kNeon,
  kNeonDotprod,
  kNeonBf16,
};

// The words of --cpu-isa: "reference"; of x86-64 "avx2", "avx2_vnni", "avx512", "avx512_vnni",
// "avx512_bf16", "amx"; of aarch64 "neon", "neon_dotprod", "neon_bf16".
std::string_view IsaName(Isa isa);
// Those that this machine (CPU and operating system) and this build can run, the best last. Always
// contains kReference.
std::vector<Isa> AvailableIsas();
// The one in use; the best one until SelectIsa is called.
Isa CurrentIsa();
// Selects one by name; "auto" selects the best. kInvalidArgument for an unknown name, kUnsupported
// for one this machine lacks (the message lists those it has). Not thread-safe: call it while no
// kernel runs.
Status SelectIsa(std::string_view name);
void SelectIsa(Isa isa);  // REQUIRES: available.

}  // namespace sluice::kernels
