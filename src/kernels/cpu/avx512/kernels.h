// The kernels for AVX-512 F, BW, DQ and VL; contracts: kernel_table.h. Call them only on a CPU that
// has these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx512 {

LinearFunction LinearBf16, LinearBf16Segments, LinearF32Bf16, LinearF32, LinearI8;
// Maximum number of rows for which LinearBf16 expands codes itself: one chunk of linear_inl.h.
constexpr int64_t kExpandRows = 90;
ExpandFunction ExpandI8, ExpandF8, ExpandNvfp4, ExpandMxfp4, ExpandInt4;
AttentionFunction AttentionChunk;

}  // namespace sluice::kernels::avx512
