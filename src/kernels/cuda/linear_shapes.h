// What own matrix products need and what they can do, for the host.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/cuda/linear_plan.h"

namespace sluice::device {

// Bytes of LinearArgs::scratch for products of up to `max_m` rows; of GroupedLinearArgs, `max_m`
// rows of all experts together. Addresses in `w` do not matter.
int64_t LinearScratchBytes(const Weights& w, int64_t max_m);

// The word of GroupScales::kWithZeros: scales of F16 and BF16 exactly, F32 ones rounded to 20 bits
// of mantissa. zero_point: 0 to 15.
uint32_t Int4ScaleWord(float scale, int zero_point);

// Whether LaunchLinear and LaunchExpandWeights take weights of this format and shape: else
// kUnsupported, which names what is wrong. Addresses do not matter.
Status CheckLinearWeights(const Weights& w);

// Whether LaunchLinear and LaunchGroupedLinear take the arguments.
Status CheckLinear(const LinearArgs& args);
Status CheckGroupedLinear(const GroupedLinearArgs& args);

}  // namespace sluice::device
