#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {

void RopeHalfRow(float* x, int num_heads, int head_dim, int rotary_dim, const float* cos_sin) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    ForEachVector(half, [&](int64_t i, auto lanes) {
      const Floats a = Load(x + i, lanes);
      const Floats b = Load(x + half + i, lanes);
      const Floats cosine = Load(cos_sin + i, lanes);
      const Floats sine = Load(cos_sin + half + i, lanes);
      Store(x + i, NegMulAdd(b, sine, Mul(a, cosine)), lanes);
      Store(x + half + i, MulAdd(b, cosine, Mul(a, sine)), lanes);
    });
  }
}

void RopeInterleavedRow(float* x, int num_heads, int head_dim, int rotary_dim,
                        const float* cos_sin) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    ForEachVector(rotary_dim, [&](int64_t i, auto lanes) {
      const int64_t pair = i / 2;
      const Floats values = Load(x + i, lanes);
      const Floats cosine = LoadTwice(cos_sin + pair, half - pair);
      const Floats sine = LoadTwice(cos_sin + half + pair, half - pair);
      Store(x + i, MulSubAdd(values, cosine, Mul(SwapPairs(values), sine)), lanes);
    });
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
