#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void GeluMulRow(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  const Floats one = Set(1.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    const Floats z = Load(gate + i, mask);
    const Floats cubic = Mul(Set(0.0713548163f), Mul(z, z));
    const Floats exponent = Mul(z, Sub(Set(-1.5957691216f), cubic));
    const Floats gelu = Div(z, Add(one, Exp(exponent)));
    StoreAs(y, i, Mul(gelu, Load(up + i, mask)), mask, y_bf16);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
