// Requirements and limits of our own matrix products, for the host.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/cuda/linear_plan.h"

namespace sluice::device {

// Returns the bytes of LinearArgs::scratch for products of up to `max_m` rows. For
// GroupedLinearArgs, `max_m` is the number of rows of all experts together. Addresses in `w` do not
// matter.
int64_t LinearScratchBytes(const Weights& w, int64_t max_m);

// Returns a word of GroupScales::kWithZeros. F16 and BF16 scales are exact; F32 scales are rounded
// to 20 mantissa bits. zero_point: 0 to 15.
uint32_t Int4ScaleWord(float scale, int zero_point);

// Checks whether LaunchLinear and LaunchExpandWeights accept weights of this format and shape. If
// not, returns kUnsupported with the reason. Addresses do not matter.
Status CheckLinearWeights(const Weights& w);

// Checks whether LaunchLinear and LaunchGroupedLinear accept the arguments.
Status CheckLinear(const LinearArgs& args);
Status CheckGroupedLinear(const GroupedLinearArgs& args);

// Returns whether LaunchLinearGroups accepts the arguments: E4M3 weights with scales of rows and
// E4M3 inputs, at addresses that are multiples of 16. REQUIRES: CheckLinear(args).
bool CanMultiplyByGroups(const LinearArgs& args);

}  // namespace sluice::device
