#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int64_t kBlock = 256;  // kDrawSumBlock

// Like ExpOfMinus of kernels/draw_weights.h, with the same roundings: every product and sum is
// rounded separately.
Floats ExpOfMinus(Floats x) {
  const Floats clamped = Min(x, Set(87.0f));
  const Floats shifter = Set(12582912.0f);
  const Floats n = Sub(Add(Mul(clamped, Set(-1.44269504f)), shifter), shifter);
  const Floats r =
      Add(Sub(Sub(Zero(), clamped), Mul(n, Set(0.693359375f))), Mul(n, Set(2.12194440e-4f)));
  Floats p = Set(1.9875691500e-4f);
  p = Add(Mul(p, r), Set(1.3981999507e-3f));
  p = Add(Mul(p, r), Set(8.3334519073e-3f));
  p = Add(Mul(p, r), Set(4.1665795894e-2f));
  p = Add(Mul(p, r), Set(1.6666665459e-1f));
  p = Add(Mul(p, r), Set(5.0000001201e-1f));
  const Floats e = Add(Add(Mul(Mul(p, r), r), r), Set(1.0f));
  return Select(Greater(Set(87.0f), x), ScaleByPowerOfTwo(e, n), Zero());
}

// The contract of DrawBlockSums requires eight lanes for any register size.
typedef float Eight __attribute__((vector_size(32)));

Eight LoadEight(const float* x) {
  Eight values;
  __builtin_memcpy(&values, x, sizeof(values));
  return values;
}

double SumOf(const Eight& sums) {
  double sum = 0;
  for (int lane = 0; lane < 8; ++lane) sum += static_cast<double>(sums[lane]);
  return sum;
}

}  // namespace

void DrawWeights(const float* logits, int64_t count, float largest, float scale, float farthest,
                 float smallest, float* weights) {
  const Floats most = Set(largest), factor = Set(scale), far = Set(farthest), least = Set(smallest);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    const Floats logit = Load(logits + i, lanes);
    const Floats distance = Mul(Sub(most, logit), factor);
    const Floats weight = Select(Greater(distance, far), Zero(), ExpOfMinus(distance));
    Store(weights + i, Select(Greater(least, logit), Zero(), weight), lanes);
  });
}

void DrawBlockSums(const float* weights, int64_t count, double* sums) {
  // Number of blocks that are summed together, so that sums need not wait for one another.
  constexpr int kAtOnce = 4;
  int64_t begin = 0;
  for (; begin + kAtOnce * kBlock <= count; begin += kAtOnce * kBlock) {
    Eight lanes[kAtOnce] = {};
    for (int64_t i = 0; i < kBlock; i += 8) {
#pragma GCC unroll 4
      for (int b = 0; b < kAtOnce; ++b) lanes[b] += LoadEight(weights + begin + b * kBlock + i);
    }
    for (const Eight& block : lanes) *sums++ = SumOf(block);
  }
  for (; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    Eight lanes = {};
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) lanes += LoadEight(weights + i);
    double sum = SumOf(lanes);
    for (; i < end; ++i) sum += static_cast<double>(weights[i]);
    *sums++ = sum;
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
