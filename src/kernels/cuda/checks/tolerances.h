// Bounds of a device's arithmetic errors, derived from its own rules.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"

namespace sluice::checks {

// Bound of the error of a sum of `depth` products on tensor cores in any order, relative to the sum
// of the products' magnitudes. Products are exact. A GPU aligns the products of one instruction (at
// least 8) and the sum so far to the largest of them, and truncates below its last place. This is
// an error of up to a whole unit of F32, 2^-23, for each of them and one more for the result. E4M3
// products of compute capability 8.9 keep only 13 fractional bits. Those of 12.x use the same
// instruction and may do the same.
inline double ProductError(const DeviceUnderTest& device, double depth, bool is_e4m3) {
  const int capability = device.device().info().compute_capability();
  const bool is_short =
      is_e4m3 && !device.is_emulated() && (capability == 89 || capability / 10 == 12);
  return Gamma(depth * (1 + 2.0 / 8) + 2, is_short ? 0x1p-13 : 0x1p-23);
}

// The bound for E4M3 products of a warpgroup (linear_f8_groups.cu). Their sums of up to 128
// products keep about 14 bits (13 are assumed); these sums are added in F32.
inline double GroupProductError(const DeviceUnderTest& device, double depth) {
  if (device.is_emulated()) return Gamma(depth + 2, 0x1p-24);
  const double in_group = std::min(depth, 128.0);
  return Gamma(in_group * (1 + 2.0 / 8) + 2, 0x1p-13) + Gamma(depth / 128 + 2, 0x1p-24);
}

// Bound of the error of a function of CUDA's math library (exp, 1 / sqrt, sin, cos, log1p): at most
// 2 ulp (CUDA C++ Programming Guide, mathematical functions). The error of the host's functions is
// not larger.
inline double MathError(double result) {
  return 2 * 0x1p-23 * std::abs(result) + 0x1p-149;
}
inline constexpr double kMathUnits = 4;  // the same bound in units of kUnitF32

}  // namespace sluice::checks
