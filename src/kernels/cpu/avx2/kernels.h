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
void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, void* y, bool y_bf16);
void Add(float* sum, const float* delta, int64_t count);
void Divide(const float* x, float divisor, int64_t count, void* y, bool y_bf16);
void SiluMul(const float* gate, const float* up, int64_t count, void* y, bool y_bf16);
void RopeHalf(float* x, int num_heads, int head_dim, const float* cos_sin);
void RopeInterleaved(float* x, int num_heads, int head_dim, const float* cos_sin);
void AttentionChunk(const AttentionChunkArgs& args);
void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16);
int64_t ArgMax(const float* x, int64_t count);
float Largest(const float* x, int64_t count);
double SumExp(const float* x, int64_t count, float shift);
int64_t CountGreater(const float* x, int64_t count, float value);

}  // namespace sluice::kernels::avx2
