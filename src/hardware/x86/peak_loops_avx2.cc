#include <immintrin.h>

#include "hardware/x86/peak_loops.h"

namespace sluice::peak_loops {

// 12 independent sums, all in registers: enough for two multiply-adds per cycle with a latency of
// up to six cycles. The empty asm statements keep the compiler from computing the result in
// advance.
double Avx2Fma(int64_t rounds) {
  __m256 sums[12];
#pragma GCC unroll 12
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) {
      sums[i] = _mm256_fmadd_ps(sums[i], factor, factor);
      asm volatile("" : "+x"(sums[i]));
    }
  }
  return static_cast<double>(rounds) * 12 * 8 * 2;
}

}  // namespace sluice::peak_loops
