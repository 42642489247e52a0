// Selects the kernels' instruction set: the best available one, or one that the user forces.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::kernels {

enum class Isa {
  kReference,
  kPortable,
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

// The values of --cpu-isa: "reference"; "portable", with bit-identical results on AVX2 and NEON
// (portable/portable.h); on x86-64 "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16",
// "amx"; on aarch64 "neon", "neon_dotprod", "neon_bf16".
std::string_view IsaName(Isa isa);
// Returns the instruction sets that this machine (CPU and operating system) and this build can run;
// the best is last. Always contains kReference.
std::vector<Isa> AvailableIsas();
// Returns the instruction set in use; the best available until SelectIsa is called.
Isa CurrentIsa();
// Selects an instruction set by name; "auto" selects the best. kInvalidArgument for an unknown
// name, kUnsupported if this machine cannot run it (the message lists those it can). Not
// thread-safe: no kernel may be running.
Status SelectIsa(std::string_view name);
void SelectIsa(Isa isa);  // REQUIRES: available on this machine

}  // namespace sluice::kernels
