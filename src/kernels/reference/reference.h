// Scalar versions of matrix products and attention: the reference in tests of the other instruction
// sets, and the fallback on machines with none of them. Contracts: kernel_table.h. Other operators
// have their scalar version in their own source (vector_kernel.h).
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels::reference {

LinearFunction LinearBf16, LinearF32Bf16, LinearF32, LinearI8;
ExpandFunction ExpandI8, ExpandF8, ExpandNvfp4, ExpandMxfp4, ExpandInt4;
AttentionFunction AttentionChunk;
// Computes y = x / divisor, F32, or BF16 bits if y_bf16.
void DivideRow(const float* x, float divisor, int64_t count, void* y, bool y_bf16);
// Computes y = y * y_factor + x * x_factor.
void AddScaled(const float* x, float x_factor, float y_factor, int64_t count, float* y);
// Converts E4M3 codes to BF16 bits, exactly. `count` is a multiple of 32.
void DecodeE4M3(const uint8_t* codes, int64_t count, uint16_t* bf16);

}  // namespace sluice::kernels::reference
