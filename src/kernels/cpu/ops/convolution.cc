#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {

void ConvolveRow(const float* const* inputs, int width, const float* weight, int64_t weight_stride,
                 const float* bias, int64_t count, bool silu, float* y) {
  ForEachVector(count, [&](int64_t i, auto lanes) {
    Floats sum = bias == nullptr ? Zero() : Load(bias + i, lanes);
    for (int j = 0; j < width; ++j)
      sum = MulAdd(Load(weight + j * weight_stride + i, lanes), Load(inputs[j] + i, lanes), sum);
    if (silu) sum = Div(sum, Add(Set(1.0f), Exp(Sub(Zero(), sum))));
    Store(y + i, sum, lanes);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
