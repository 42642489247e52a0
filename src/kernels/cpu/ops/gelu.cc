#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {

// gelu(x) = max(x, 0) - |x| / 2 * erfc(t) for either sign of x, with t = |x| / sqrt(2) and erfc(t)
// = 1 - erf(t).
void GeluRow(const float* x, int64_t count, void* y, bool y_bf16) {
  const Floats one = Set(1.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    const Floats value = Load(x + i, mask);
    const Floats size = Max(value, Sub(Zero(), value));
    const Floats k = Div(one, MulAdd(Set(0.3275911f * 0.70710678f), size, one));
    Floats p = Set(1.061405429f);
    p = MulAdd(p, k, Set(-1.453152027f));
    p = MulAdd(p, k, Set(1.421413741f));
    p = MulAdd(p, k, Set(-0.284496736f));
    p = MulAdd(p, k, Set(0.254829592f));
    const Floats erfc = Mul(Mul(p, k), Exp(Mul(Mul(size, size), Set(-0.5f))));
    const Floats tail = Mul(Mul(size, Set(0.5f)), erfc);
    StoreAs(y, i, Sub(Max(value, Zero()), tail), mask, y_bf16);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
