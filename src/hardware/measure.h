// Measures limits of this machine, with which achieved speeds are compared.
#pragma once

#include "base/thread_pool.h"

namespace sluice {

// All figures are totals over the pool's threads, and the best of several short runs.

// Bandwidth of sequential reads in bytes per second, from a buffer of up to 1 GiB (at most an
// eighth of the available memory). 0 if the buffer cannot be allocated. Takes up to half a second.
double MeasureReadBandwidth(ThreadPool& pool);

// Floating-point operations per second with operands in registers; a multiply-add counts as two. 0
// if the CPU lacks the instructions. Each takes a tenth of a second.
double MeasureFp32Peak(ThreadPool& pool);        // FMA of AVX-512, else of AVX2, or of NEON
double MeasureAvx512Bf16Peak(ThreadPool& pool);  // BF16 dot products of AVX-512
double MeasureAmxBf16Peak(ThreadPool& pool);     // BF16 dot products of AMX tiles
double MeasureNeonBf16Peak(ThreadPool& pool);    // BF16 matrix products of NEON

// The largest BF16 figure, or the FP32 figure if the CPU has no BF16 instructions.
double MeasureBf16Peak(ThreadPool& pool);

}  // namespace sluice
