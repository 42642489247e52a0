#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Sums in four vectors of lanes and adds them at the end, so the order depends only on `cols`.
// term(sum, x) adds to a vector of sums. Elements after the last whole vector are added one at a
// time.
template <typename Term>
float SumOf(const float* x, int64_t cols, const Term& term) {
  Floats sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sums[j] = term(sums[j], Load(x + i + j * kLanes));
  }
  for (; i + kLanes <= cols; i += kLanes) sums[0] = term(sums[0], Load(x + i));
  float sum = SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
  for (; i < cols; ++i) {
    const Floats one = term(Zero(), Set(x[i]));
    sum += SumLanes(one) / kLanes;
  }
  return sum;
}

}  // namespace

void LayerNormRow(float* x, const float* weight, const float* bias, float eps, int64_t cols,
                  void* y, bool y_bf16) {
  const float mean = SumOf(x, cols, [](Floats sum, Floats value) { return Add(sum, value); }) /
                     static_cast<float>(cols);
  const Floats means = Set(mean);
  const float variance = SumOf(x, cols,
                               [&](Floats sum, Floats value) {
                                 const Floats distance = Sub(value, means);
                                 return MulAdd(distance, distance, sum);
                               }) /
                         static_cast<float>(cols);
  const Floats factor = Set(1.0f / __builtin_sqrtf(variance + eps));
  ForEachVector(cols, [&](int64_t i, auto lanes) {
    const Floats scaled = Mul(Sub(Load(x + i, lanes), means), factor);
    const Floats result = MulAdd(scaled, Load(weight + i, lanes), Load(bias + i, lanes));
    Store(x + i, result, lanes);
    if (y != nullptr) StoreAs(y, i, result, lanes, y_bf16);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
