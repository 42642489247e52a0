#include <arm_neon.h>

#include "hardware/arm/peak_loops.h"

namespace sluice::peak_loops {

// 24 independent sums, all in registers: enough for four multiply-adds per cycle with a latency of
// up to four cycles. The empty asm statements keep the compiler from computing the result in
// advance.
double NeonFma(int64_t rounds) {
  float32x4_t sums[24];
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  const float32x4_t factor = vdupq_n_f32(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) {
      sums[i] = vfmaq_f32(factor, sums[i], factor);
      asm volatile("" : "+w"(sums[i]));
    }
  }
  return static_cast<double>(rounds) * 24 * 4 * 2;
}

}  // namespace sluice::peak_loops
