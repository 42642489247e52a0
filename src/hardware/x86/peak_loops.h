// Loops of multiply-adds. Each runs `rounds` rounds and returns the number of floating-point
// operations. Each is compiled for its own instruction set, so call it only on a CPU that supports
// it.
#pragma once

#include <stdint.h>

namespace sluice::peak_loops {

double Avx2Fma(int64_t rounds);
double Avx512Fma(int64_t rounds);
double Avx512Bf16(int64_t rounds);
double AmxBf16(int64_t rounds);

}  // namespace sluice::peak_loops
