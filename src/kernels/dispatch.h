// Which implementation of the kernels runs: chosen once at start, named, listable and forcible.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::kernels {

enum class Isa { kReference, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view IsaName(
    Isa isa);  // "reference", "avx2", "avx512", "avx512_bf16", "amx": the words of --cpu-isa
// Those that this machine (CPU and operating system) and this build can run, the best last.
// kReference is always there.
std::vector<Isa> AvailableIsas();
// The implementation in use. Before SelectIsa it is the best one.
Isa CurrentIsa();
// Forces one; "auto" takes the best. kInvalidArgument for an unknown word, kUnsupported for one
// this machine lacks (the message lists those it has). Not thread-safe: call it before kernels run
// (tests switch between runs).
Status SelectIsa(std::string_view name);
void SelectIsa(Isa isa);  // REQUIRES: available.

}  // namespace sluice::kernels
