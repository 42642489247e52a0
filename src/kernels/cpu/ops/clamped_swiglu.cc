#include "kernels/cpu/ops/ops.h"

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// The last pairs of a row, padded with zeros.
struct LastPairs {
  float values[2 * kLanes];

  LastPairs(const float* pairs, int64_t count) {
    for (int64_t i = 0; i < 2 * kLanes; ++i) values[i] = i < 2 * count ? pairs[i] : 0.0f;
  }
};

}  // namespace

void ClampedSwigluRow(const float* pairs, int64_t count, float alpha, float limit, void* y,
                      bool y_bf16) {
  const Floats one = Set(1.0f), most = Set(limit), least = Set(-limit), factor = Set(-alpha);
  const auto combine = [&](const float* from) __attribute__((always_inline)) {
    Floats gate, up;
    LoadPairs(from, gate, up);
    // This order of the operands propagates NaN.
    gate = Min(most, gate);
    up = Max(least, Min(most, up));
    const Floats glu = Div(gate, Add(one, Exp(Mul(factor, gate))));
    return Mul(glu, Add(up, one));
  };
  ForEachVector(
      count, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
        if (i + kLanes <= count)
          StoreAs(y, i, combine(pairs + 2 * i), lanes, y_bf16);
        else
          StoreAs(y, i, combine(LastPairs(pairs + 2 * i, count - i).values), lanes, y_bf16);
      });
}

}  // namespace sluice::kernels::SLUICE_ISA
