#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void SiluMulRow(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  const Floats one = Set(1.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Mask mask = FirstLanes(count - i);
    const Floats z = Load(gate + i, mask);
    const Floats silu = Div(z, Add(one, Exp(Sub(Zero(), z))));
    StoreAs(y, i, Mul(silu, Load(up + i, mask)), mask, y_bf16);
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
