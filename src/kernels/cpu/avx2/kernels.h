// The kernels for AVX2 and FMA; their contracts stand in kernel_table.h. Call them only on a CPU
// that has these instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::avx2 {

void LinearBf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end);
void LinearF32Bf16(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end);
void LinearF32(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
               int64_t panel_end);
void LinearI8(const LinearArgs& args, int64_t row_begin, int64_t row_end, int64_t panel_begin,
              int64_t panel_end);
void ExpandI8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines);
void ExpandF8(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines);
void ExpandNvfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines);
void ExpandMxfp4(const uint8_t* codes, const uint8_t* scales, int64_t steps, uint8_t* lines);
void AttentionChunk(const AttentionChunkArgs& args);

}  // namespace sluice::kernels::avx2
