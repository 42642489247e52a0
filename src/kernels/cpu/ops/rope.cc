#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {

void RopeHalfRow(float* x, int num_heads, int head_dim, const float* cos_sin) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; i += kLanes) {
      const Mask mask = FirstLanes(half - i);
      const Floats a = Load(x + i, mask);
      const Floats b = Load(x + half + i, mask);
      const Floats cosine = Load(cos_sin + i, mask);
      const Floats sine = Load(cos_sin + half + i, mask);
      Store(x + i, NegMulAdd(b, sine, Mul(a, cosine)), mask);
      Store(x + half + i, MulAdd(b, cosine, Mul(a, sine)), mask);
    }
  }
}

void RopeInterleavedRow(float* x, int num_heads, int head_dim, const float* cos_sin) {
  const int half = head_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (int i = 0; i < half; i += kLanes / 2) {
      const int64_t pairs = half - i;
      const Mask mask = FirstLanes(2 * pairs);
      const Floats values = Load(x + 2 * i, mask);
      const Floats cosine = LoadTwice(cos_sin + i, pairs);
      const Floats sine = LoadTwice(cos_sin + half + i, pairs);
      Store(x + 2 * i, MulSubAdd(values, cosine, Mul(SwapPairs(values), sine)), mask);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
