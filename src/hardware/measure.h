// What this machine can do at most, measured: the limits that speeds are judged against.
#pragma once

#include "base/thread_pool.h"

namespace sluice {

// All figures are for the pool's threads together, the best of several short runs.

// Bytes a second read from memory, streaming, from a buffer of 1 GiB (less where the machine is
// small): larger than most caches. 0 when the buffer cannot be had. Takes up to half a second.
double MeasureReadBandwidth(ThreadPool& pool);

// Floating-point operations a second (a multiply-add counts as two) with the operands in registers.
// 0 where the CPU lacks the instructions. Each takes a tenth of a second.
double MeasureFp32Peak(ThreadPool& pool);  // multiply-adds of the widest kind: AVX-512 or AVX2
double MeasureAvx512Bf16Peak(ThreadPool& pool);  // BF16 dot products of AVX-512
double MeasureAmxBf16Peak(ThreadPool& pool);     // BF16 dot products of AMX tiles

// The larger of the two BF16 figures, or the FP32 figure where the CPU has neither.
double MeasureBf16Peak(ThreadPool& pool);

}  // namespace sluice
