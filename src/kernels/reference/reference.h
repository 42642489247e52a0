// Scalar versions of matrix products and attention: what the versions of the instruction sets are
// tested against, and what runs on a machine with none of them. Contracts: kernel_table.h. Other
// operators have their scalar version in their own source (vector_kernel.h).
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::reference {

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
// y = x / divisor; F32, or BF16 bits where y_bf16.
void DivideRow(const float* x, float divisor, int64_t count, void* y, bool y_bf16);
// E4M3 codes to BF16 bits, exactly. `count` is a multiple of 32.
void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16);

}  // namespace sluice::kernels::reference
