// The soft cap of attention scores. Uses the vector operations of a simd.h, which must be included
// first.
#pragma once

#include "kernels/cpu/exp_inl.h"

namespace sluice::kernels {
namespace {

// Replaces scores at [begin, end), begin a multiple of kLanes, by cap * tanh(score / cap), with
// tanh(x) = 1 - 2 / (exp(2 x) + 1). May also change scores after `end` in the last vector.
inline void CapScores(float* scores, int begin, int end, float cap) {
  const Floats caps = Set(cap), factor = Set(2 / cap), one = Set(1.0f), two = Set(2.0f);
  for (int i = begin; i < end; i += kLanes) {
    const Floats power = Exp(Mul(Load(scores + i), factor));
    Store(scores + i, Mul(caps, Sub(one, Div(two, Add(power, one)))));
  }
}

}  // namespace
}  // namespace sluice::kernels
