// Math functions for which AMD's GPUs have no instructions, for GPUs without ROCm's math library,
// and for the emulator. Computed in double precision, so that the error of a result is little more
// than its final rounding.
#pragma once

#include <stdint.h>

#include "kernels/on_device_too.h"

namespace sluice::hip_math {

struct Reduced {
  double rest;   // in [-pi/4, pi/4]
  int quadrant;  // number of multiples of pi/2 that were subtracted, modulo 4
};

SLUICE_ON_DEVICE_TOO inline Reduced ReduceAngle(float x) {
  const double count = __builtin_rint(static_cast<double>(x) * 0.63661977236758134308);
  // pi/2 in two parts, so that the first difference is exact.
  double rest = __builtin_fma(count, -1.57079632679489655800, static_cast<double>(x));
  rest = __builtin_fma(count, -6.12323399573676603587e-17, rest);
  return {rest, static_cast<int>(static_cast<int64_t>(count) & 3)};
}

// Taylor series; the first omitted term is below 3e-15.
SLUICE_ON_DEVICE_TOO inline double SineNearZero(double r) {
  const double s = r * r;
  double p = 1.6059043836821613e-10;
  p = __builtin_fma(p, s, -2.5052108385441720e-08);
  p = __builtin_fma(p, s, 2.7557319223985893e-06);
  p = __builtin_fma(p, s, -1.9841269841269841e-04);
  p = __builtin_fma(p, s, 8.3333333333333332e-03);
  p = __builtin_fma(p, s, -1.6666666666666666e-01);
  return __builtin_fma(p * s, r, r);
}
SLUICE_ON_DEVICE_TOO inline double CosineNearZero(double r) {
  const double s = r * r;
  double p = -1.1470745597729725e-11;
  p = __builtin_fma(p, s, 2.0876756987868099e-09);
  p = __builtin_fma(p, s, -2.7557319223985888e-07);
  p = __builtin_fma(p, s, 2.4801587301587302e-05);
  p = __builtin_fma(p, s, -1.3888888888888889e-03);
  p = __builtin_fma(p, s, 4.1666666666666664e-02);
  p = __builtin_fma(p, s, -0.5);
  return __builtin_fma(p, s, 1.0);
}

// Valid for |x| up to 2^30, which is more than any position times a frequency.
SLUICE_ON_DEVICE_TOO inline float Sine(float x) {
  const Reduced angle = ReduceAngle(x);
  const double value =
      (angle.quadrant & 1) != 0 ? CosineNearZero(angle.rest) : SineNearZero(angle.rest);
  return static_cast<float>((angle.quadrant & 2) != 0 ? -value : value);
}
SLUICE_ON_DEVICE_TOO inline float Cosine(float x) {
  const Reduced angle = ReduceAngle(x);
  const double value =
      (angle.quadrant & 1) != 0 ? SineNearZero(angle.rest) : CosineNearZero(angle.rest);
  return static_cast<float>(((angle.quadrant + 1) & 2) != 0 ? -value : value);
}

// Returns the logarithm of 1 + x.
SLUICE_ON_DEVICE_TOO inline float LogOnePlus(float x) {
  const double wide = x;
  if (__builtin_fabs(wide) < 0x1p-20) return static_cast<float>(wide - wide * wide * 0.5);
  const double sum = 1.0 + wide;
  if (!(sum > 0.0) || sum > 0x1p200) {  // also NaN and infinity
    if (sum > 0.0) return x;
    return sum == 0.0 ? -__builtin_inff() : __builtin_nanf("");
  }
  // sum = 2^exponent * mantissa, the mantissa between sqrt(1/2) and sqrt(2).
  const auto bits = __builtin_bit_cast(uint64_t, sum);
  const uint64_t shifted = bits - 0x3FE6A09E667F3BCDull;
  const int exponent = static_cast<int>(static_cast<int64_t>(shifted) >> 52);
  const double mantissa = __builtin_bit_cast(
      double, bits - (static_cast<uint64_t>(static_cast<int64_t>(exponent)) << 52));
  const double t = (mantissa - 1.0) / (mantissa + 1.0);
  const double s = t * t;
  double p = 1.0 / 15.0;
  p = __builtin_fma(p, s, 1.0 / 13.0);
  p = __builtin_fma(p, s, 1.0 / 11.0);
  p = __builtin_fma(p, s, 1.0 / 9.0);
  p = __builtin_fma(p, s, 1.0 / 7.0);
  p = __builtin_fma(p, s, 1.0 / 5.0);
  p = __builtin_fma(p, s, 1.0 / 3.0);
  return static_cast<float>(__builtin_fma(static_cast<double>(exponent), 0.69314718055994530942,
                                          2.0 * __builtin_fma(p * s, t, t)));
}

}  // namespace sluice::hip_math
