// What the arithmetic of a device may be off by, from its own rules.
#pragma once

#include <cmath>

#include "kernels/cuda/checks/checked_device.h"
#include "kernels/cuda/checks/comparison.h"

namespace sluice::checks {

// Bound of the error of a sum of `depth` products on tensor cores, as a share of the sum of the
// products' magnitudes, whatever the order. Products are exact. A GPU lines up the products of one
// instruction (at least 8 of them) and the sum so far with the largest of them and cuts off what is
// after its last place: an error of up to a whole step of F32, 2^-23, for each of them and one
// more for the result. E4M3 products of compute capability 8.9 keep only 13 bits after the point.
inline double ProductError(const DeviceUnderTest& device, double depth, bool is_e4m3) {
  const bool is_short =
      is_e4m3 && !device.is_emulated() && device.device().info().compute_capability() == 89;
  return Gamma(depth * (1 + 2.0 / 8) + 2, is_short ? 0x1p-13 : 0x1p-23);
}

// The error of a function of CUDA's library (exp, 1 / sqrt, sin, cos, log1p): at most 2 ulp (CUDA
// C++ Programming Guide, mathematical functions); a host's are no worse.
inline double MathError(double result) {
  return 2 * 0x1p-23 * std::abs(result) + 0x1p-149;
}
inline constexpr double kMathUnits = 4;  // the same in units of kUnitF32

}  // namespace sluice::checks
