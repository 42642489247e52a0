// exp of a vector. Uses the vector operations of a simd.h included before.
#pragma once

namespace sluice::kernels {
namespace {

// Within 2 units in the last place over the whole range; exactly 1 for 0, 0 below -104, infinity
// above 88.73, NaN for NaN. No branches per lane. x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^n
// exp(r); exp(r) is approximated by its Taylor polynomial of degree 7, with an error of 5e-9.
inline Floats Exp(Floats x) {
  // This order of the operands propagates NaN.
  const Floats clamped = Min(Set(89.0f), Max(Set(-104.5f), x));
  const Floats n = RoundToWhole(Mul(clamped, Set(1.44269504088896341f)));
  Floats r =
      NegMulAdd(n, Set(0.693359375f), clamped);  // ln 2 in two parts; the first has nine bits
  r = NegMulAdd(n, Set(-2.12194440e-4f), r);
  Floats p = Set(1.0f / 5040);
  p = MulAdd(p, r, Set(1.0f / 720));
  p = MulAdd(p, r, Set(1.0f / 120));
  p = MulAdd(p, r, Set(1.0f / 24));
  p = MulAdd(p, r, Set(1.0f / 6));
  p = MulAdd(p, r, Set(0.5f));
  p = MulAdd(p, r, Set(1.0f));
  p = MulAdd(p, r, Set(1.0f));
  return ScaleByPowerOfTwo(p, n);
}

}  // namespace
}  // namespace sluice::kernels
