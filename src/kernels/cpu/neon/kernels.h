// The kernels for Advanced SIMD, which every aarch64 CPU has; contracts: kernel_table.h.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::neon {

LinearFunction LinearBf16Segments, LinearF32Bf16, LinearF32, LinearI8;
// Maximum number of rows for which LinearBf16Segments expands codes itself: one chunk of
// linear_inl.h.
constexpr int64_t kExpandRows = 90;
ExpandFunction ExpandI8, ExpandF8, ExpandNvfp4, ExpandMxfp4, ExpandInt4;
AttentionFunction AttentionChunk;

}  // namespace sluice::kernels::neon
