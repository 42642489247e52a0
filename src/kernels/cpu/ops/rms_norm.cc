#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Sums in four vectors of lanes and adds them at the end, so the order depends only on `cols`.
float SumOfSquares(const float* x, int64_t cols) {
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

}  // namespace

void RmsNormRow(const float* x, const float* weight, float eps, int64_t cols, void* y,
                bool y_bf16) {
  const float mean = SumOfSquares(x, cols) / static_cast<float>(cols);
  const Floats factor = Set(1.0f / __builtin_sqrtf(mean + eps));
  ForEachVector(cols, [&](int64_t i, auto lanes) {
    StoreAs(y, i, Mul(Load(weight + i, lanes), Mul(Load(x + i, lanes), factor)), lanes, y_bf16);
  });
}

void AddRow(float* sum, const float* delta, int64_t count) {
  ForEachVector(count, [&](int64_t i, auto lanes) {
    Store(sum + i, Add(Load(sum + i, lanes), Load(delta + i, lanes)), lanes);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
