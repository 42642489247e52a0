// The kernels for AVX2 and FMA; contracts: kernel_table.h. Call them only on a CPU
// that has these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx2 {

LinearFunction LinearBf16, LinearBf16Segments, LinearF32Bf16, LinearF32, LinearI8;
// LinearBf16 for CPUs that compute with subnormal F32 numbers at full speed; bit-identical.
LinearFunction LinearBf16Subnormals;
// Number of panels that LinearBf16 multiplies together if it expands codes in registers, and up to
// which number of rows. The inputs are converted and examined once for these panels.
constexpr int kFewRowsPanels = 12;
constexpr int64_t kFewRows = 15;
// Maximum number of rows for which LinearBf16 expands codes itself: one chunk of linear_inl.h.
constexpr int64_t kExpandRows = 90;
ExpandFunction ExpandI8, ExpandF8, ExpandNvfp4, ExpandMxfp4, ExpandInt4;
AttentionFunction AttentionChunk;

}  // namespace sluice::kernels::avx2
