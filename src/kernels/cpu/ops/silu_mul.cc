#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void SiluMulRow(const float* gate, const float* up, int64_t count, void* y, bool y_bf16) {
  const Floats one = Set(1.0f);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    const Floats z = Load(gate + i, lanes);
    const Floats silu = Div(z, Add(one, Exp(Sub(Zero(), z))));
    StoreAs(y, i, Mul(silu, Load(up + i, lanes)), lanes, y_bf16);
  });
}

void SigmoidMulRow(const float* gate, int64_t count, void* y, bool y_bf16) {
  const Floats one = Set(1.0f);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    const Floats value = y_bf16 ? LoadBf16(static_cast<const uint16_t*>(y) + i, lanes)
                                : Load(static_cast<const float*>(y) + i, lanes);
    const Floats z = Load(gate + i, lanes);
    StoreAs(y, i, Div(value, Add(one, Exp(Sub(Zero(), z)))), lanes, y_bf16);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
