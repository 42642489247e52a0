#include "kernels/cpu/ops/ops.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int64_t kBlock = 256;  // kMaximaBlock

struct Maximum {
  Floats largest = Set(-__builtin_inff());
  Floats nan = Zero();  // contains NaN in lanes that had a NaN

  void Add(Floats v) {
    largest = Max(v, largest);
    nan = Select(IsNan(v), v, nan);
  }
  float Value() const { return Any(IsNan(nan)) ? __builtin_nanf("") : MaxLane(largest); }
};

}  // namespace

void BlockMaxima(const float* x, int64_t x_stride, int64_t rows, int64_t columns, float* maxima,
                 int64_t maxima_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * x_stride;
    float* to = maxima + row * maxima_stride;
    int64_t i = 0;
    for (; i + kBlock <= columns; i += kBlock) {
      Maximum maximum;
#pragma GCC unroll 16
      for (int64_t j = 0; j < kBlock; j += kLanes) maximum.Add(Load(from + i + j));
      *to++ = maximum.Value();
    }
    if (i == columns) continue;
    Maximum maximum;
    for (; i < columns; i += kLanes) {
      const Mask mask = FirstLanes(columns - i);
      maximum.Add(Select(mask, Load(from + i, mask), Set(-__builtin_inff())));
    }
    *to = maximum.Value();
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
