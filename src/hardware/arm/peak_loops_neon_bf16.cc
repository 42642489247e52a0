#include <arm_neon.h>

#include "hardware/arm/peak_loops.h"

namespace sluice::peak_loops {

// 24 independent products of 2 x 4 by 4 x 2 numbers, all in registers. The empty asm statements
// keep the compiler from computing the result in advance.
double NeonBf16(int64_t rounds) {
  float32x4_t sums[24];
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  uint16x8_t one = vdupq_n_u16(0x3F80);
  asm("" : "+w"(one));  // GCC 12 would create the constant with an F16 instruction.
  const bfloat16x8_t ones = vreinterpretq_bf16_u16(one);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) {
      sums[i] = vbfmmlaq_f32(sums[i], ones, ones);
      asm volatile("" : "+w"(sums[i]));
    }
  }
  return static_cast<double>(rounds) * 24 * 16 * 2;
}

}  // namespace sluice::peak_loops
