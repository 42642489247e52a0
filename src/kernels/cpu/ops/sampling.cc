#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

Floats LoadOr(const float* x, int64_t count, Floats otherwise) {
  if (count >= kLanes) return Load(x);
  const Mask mask = FirstLanes(count);
  return Select(mask, Load(x, mask), otherwise);
}

}  // namespace

// Returns the largest element; NaN is smaller than every number.
float Largest(const float* x, int64_t count) {
  const Floats lowest = Set(-__builtin_inff());
  Floats largest[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) largest[j] = Max(Load(x + i + j * kLanes), largest[j]);
  }
  for (; i < count; i += kLanes) largest[0] = Max(LoadOr(x + i, count - i, lowest), largest[0]);
  return MaxLane(Max(Max(largest[0], largest[1]), Max(largest[2], largest[3])));
}

int64_t ArgMax(const float* x, int64_t count) {
  const float largest = Largest(x, count);
  const Floats wanted = Set(largest);
  for (int64_t i = 0; i < count; i += kLanes) {
    if (!Any(Equal(LoadOr(x + i, count - i, Set(__builtin_nanf(""))), wanted))) continue;
    while (x[i] != largest) ++i;
    return i;
  }
  return 0;  // all elements are NaN
}

// Sums lanes in F32 over blocks of 64 vectors, and blocks in double precision. The result is
// accurate to a few units in the last place of F32 for any count.
double SumExp(const float* x, int64_t count, float shift) {
  constexpr int64_t kBlock = 64 * kLanes;
  const Floats shifts = Set(shift);
  double total = 0;
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t end = block + kBlock < count ? block + kBlock : count;
    Floats sum = Zero();
    for (int64_t i = block; i < end; i += kLanes) {
      sum = Add(sum, Exp(Sub(LoadOr(x + i, end - i, Set(-__builtin_inff())), shifts)));
    }
    total += static_cast<double>(SumLanes(sum));
  }
  return total;
}

int64_t CountNan(const float* x, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += kLanes)
    found += CountLanes(IsNan(LoadOr(x + i, count - i, Zero())));
  return found;
}

int64_t CountGreater(const float* x, int64_t count, float value) {
  const Floats limit = Set(value);
  int64_t greater = 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    greater +=
        CountLanes(And(FirstLanes(count - i), Greater(LoadOr(x + i, count - i, limit), limit)));
  }
  return greater;
}

}  // namespace sluice::kernels::SLUICE_ISA
