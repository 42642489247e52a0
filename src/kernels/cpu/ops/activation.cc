#include "kernels/activation_rule.h"

#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

inline Floats ActivationOf(const ActivationRule& rule, Floats z) {
  const Floats one = Set(1.0f);
  switch (rule.kind) {
    case ActivationKind::kSilu: return Div(z, Add(one, Exp(Mul(Set(-rule.gain), z))));
    case ActivationKind::kGeluTanh: {
      const Floats cubic = Mul(Set(0.0713548163f), Mul(z, z));
      return Div(z, Add(one, Exp(Mul(z, Sub(Set(-1.5957691216f), cubic)))));
    }
    case ActivationKind::kQuickGelu: return Div(z, Add(one, Exp(Mul(Set(-1.702f), z))));
    // Max returns its second operand if either is NaN, so a NaN is kept.
    case ActivationKind::kRelu: return Max(Zero(), z);
    case ActivationKind::kRelu2: {
      const Floats positive = Max(Zero(), z);
      return Mul(positive, positive);
    }
    case ActivationKind::kXielu: break;
  }
  const Floats linear = Mul(Set(rule.beta), z);
  const Floats above = MulAdd(Set(rule.alpha_p), Mul(z, z), linear);
  const Floats decay = Sub(Sub(Exp(Min(Set(rule.eps), z)), one), z);
  return Select(Greater(z, Zero()), above, MulAdd(Set(rule.alpha_n), decay, linear));
}

}  // namespace

void ActivationRow(const ActivationRule& rule, const float* x, const float* gated, int64_t count,
                   void* y, bool y_bf16) {
  const Floats most = Set(rule.limit), least = Set(-rule.limit);
  ForEachVector(count, [&](int64_t i, auto lanes) {
    // Min returns its second operand if either is NaN, so a NaN is kept.
    Floats z = Load(x + i, lanes);
    if (rule.limit > 0 && rule.limits_input) z = Min(most, z);
    Floats value = ActivationOf(rule, z);
    if (rule.limit > 0 && !rule.limits_input) value = Min(most, value);
    if (gated != nullptr) {
      Floats factor = Load(gated + i, lanes);
      if (rule.limit > 0) factor = Max(least, Min(most, factor));
      if (rule.factor_offset != 0) factor = Add(factor, Set(rule.factor_offset));
      value = Mul(value, factor);
    }
    StoreAs(y, i, value, lanes, y_bf16);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
