#include <immintrin.h>

#include "hardware/x86/peak_loops.h"

namespace sluice::peak_loops {

// 24 independent sums, all in registers. The empty asm statements keep the compiler from computing
// the result in advance.
double Avx512Fma(int64_t rounds) {
  __m512 sums[24];
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) {
      sums[i] = _mm512_fmadd_ps(sums[i], factor, factor);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return static_cast<double>(rounds) * 24 * 16 * 2;
}

}  // namespace sluice::peak_loops
