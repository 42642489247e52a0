// rms_norm, residual add, division, silu_mul and rope, in the vector operations of a simd.h
// included before.
#pragma once

#include "kernels/cpu/exp_inl.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

inline void StoreAs(void* y, int64_t index, Floats value, Mask mask, bool bf16) {
  if (bf16)
    StoreBf16(static_cast<uint16_t*>(y) + index, value, mask);
  else
    Store(static_cast<float*>(y) + index, value, mask);
}

// Sums in four vectors of lanes, joined at the end: an order that depends on `cols` alone.
inline float SumOfSquares(const float* x, int64_t cols) {
  Floats sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const Floats value = Load(x + i + j * kLanes);
      sums[j] = MulAdd(value, value, sums[j]);
    }
  }
  for (; i < cols; i += kLanes) {
    const Floats value = Load(x + i, FirstLanes(cols - i));
    sums[0] = MulAdd(value, value, sums[0]);
  }
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

inline void RmsNormRowImpl(const float* x, const float* weight, float eps, int64_t cols, void* y,
                           bool bf16) {
  const float mean = SumOfSquares(x, cols) / static_cast<float>(cols);
  const Floats factor = Set(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < cols; i += kLanes) {
    const Mask mask = FirstLanes(cols - i);
    StoreAs(y, i, Mul(Load(weight + i, mask), Mul(Load(x + i, mask), factor)), mask, bf16);
  }
}

inline void AddImpl(float* sum, const float* delta, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    Store(sum + i, Add(Load(sum + i, mask), Load(delta + i, mask)), mask);
  }
}

inline void DivideImpl(const float* x, float divisor, int64_t count, void* y, bool bf16) {
  const Floats divisors = Set(divisor);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    StoreAs(y, i, Div(Load(x + i, mask), divisors), mask, bf16);
  }
}

inline void SiluMulImpl(const float* gate, const float* up, int64_t count, void* y, bool bf16) {
  const Floats one = Set(1.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    const Floats z = Load(gate + i, mask);
    const Floats silu = Div(z, Add(one, Exp(Sub(Zero(), z))));
    StoreAs(y, i, Mul(silu, Load(up + i, mask)), mask, bf16);
  }
}

inline void RopeHalfImpl(float* x, int num_heads, int head_dim, const float* cos_sin) {
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

inline void RopeInterleavedImpl(float* x, int num_heads, int head_dim, const float* cos_sin) {
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

}  // namespace
}  // namespace sluice::kernels
