// exp of a vector. Uses the vector operations of a simd.h, which must be included first.
#pragma once

namespace sluice::kernels {
namespace {

// x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^n exp(r); exp(r) is approximated by its Taylor
// polynomial of degree 7, with an error of 5e-9.
struct ExpParts {
  Floats n;
  Floats exp_r;
};
inline ExpParts ExpPartsOf(Floats x) {
  const Floats n = RoundToWhole(Mul(x, Set(1.44269504088896341f)));
  Floats r = NegMulAdd(n, Set(0.693359375f), x);  // ln 2 in two parts; the first has nine bits
  r = NegMulAdd(n, Set(-2.12194440e-4f), r);
  Floats p = Set(1.0f / 5040);
  p = MulAdd(p, r, Set(1.0f / 720));
  p = MulAdd(p, r, Set(1.0f / 120));
  p = MulAdd(p, r, Set(1.0f / 24));
  p = MulAdd(p, r, Set(1.0f / 6));
  p = MulAdd(p, r, Set(0.5f));
  p = MulAdd(p, r, Set(1.0f));
  p = MulAdd(p, r, Set(1.0f));
  return {n, p};
}

// The error is within 2 units in the last place over the whole range. Exactly 1 for 0, 0 below
// -104, infinity above 88.73, NaN for NaN. There are no branches per lane.
inline Floats Exp(Floats x) {
  // This order of the operands propagates NaN.
  const ExpParts parts = ExpPartsOf(Min(Set(89.0f), Max(Set(-104.5f), x)));
  return ScaleByPowerOfTwo(parts.exp_r, parts.n);
}

// Computes exp(x) for x <= 0 with fewer instructions; returns 0 for x below -87.
inline Floats ExpOfNegative(Floats x) {
  const ExpParts parts = ExpPartsOf(x);
  return Select(Greater(Set(-87.0f), x), Zero(), AddToExponent(parts.exp_r, parts.n));
}

}  // namespace
}  // namespace sluice::kernels
