// Loops of nothing but multiply-adds. Each runs `rounds` rounds and returns the floating-point
// operations done. Call them only on a CPU that has the instructions: each is compiled for its own.
#pragma once

#include <stdint.h>

namespace sluice::peak_loops {

double Avx2Fma(int64_t rounds);
double Avx512Fma(int64_t rounds);
double Avx512Bf16(int64_t rounds);
double AmxBf16(int64_t rounds);

}  // namespace sluice::peak_loops
