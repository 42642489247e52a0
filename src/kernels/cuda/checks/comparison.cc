#include "kernels/cuda/checks/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

// Rounds to nearest through F32. This never moves a value across a tie. Bounds are either 0, in
// which case the exact values are F32 numbers, or wider than half a unit of F32.
float NearestBf16(double value) {
  return ToFloat(ToBFloat16(static_cast<float>(value)));
}
float NearestE4m3(double value) {
  return ToFloat(ToFloat8E4M3(static_cast<float>(value)));
}

// Returns the least distance from `expected` to a value that rounds to `got`. A value rounds to
// `got` if it is closer to `got` than to the adjacent values of the result's type.
double Needed(double below, double got, double above, double expected) {
  const double low = (below + got) / 2, high = (got + above) / 2;
  return expected < low ? low - expected : expected > high ? expected - high : 0;
}

}  // namespace

double Gamma(double roundings, double unit) {
  const double sum = roundings * unit;
  return sum < 1 ? sum / (1 - sum) : std::numeric_limits<double>::infinity();
}

void Comparison::Add(double got, double expected, double low, double high, double needed,
                     double error) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const int64_t index = count_++;
  const bool inside = std::isnan(expected) ? std::isnan(got) : low <= got && got <= high;
  if (std::isnan(got) != std::isnan(expected)) needed = kInfinity;
  if (std::isnan(needed)) needed = 0;  // true if both are NaN, or both are the same infinity
  double ratio = error > 0 ? needed / error : 0;
  if (!inside) ratio = std::max(error > 0 ? ratio : kInfinity, 1.0);
  if (ratio > worst_ratio_) {
    worst_ratio_ = ratio;
    worst_error_ = inside || needed > 0 ? needed : std::abs(got - expected);
    worst_bound_ = error;
  }
  if (inside) return;
  if (failed_++ == 0) {
    first_failure_ = fmt::format("{}{}number {}: got {:.9g}, expected {:.9g} +- {:.3g}", subject_,
                                 subject_.empty() ? "" : ": ", index, got, expected, error);
  }
}

void Comparison::AddExact(double error) {
  ++count_;
  if (worst_ratio_ >= 0) return;
  worst_ratio_ = 0;
  worst_bound_ = error;
}

void Comparison::AddF32(float got, double expected, double error) {
  if (got == expected) return AddExact(error);
  const double needed =
      Needed(std::nextafter(got, -INFINITY), got, std::nextafter(got, INFINITY), expected);
  Add(got, expected, static_cast<float>(expected - error), static_cast<float>(expected + error),
      needed, error);
}

void Comparison::AddBf16(uint16_t got, double expected, double error) {
  const float number = ToFloat(BFloat16{got});
  if (number == expected) return AddExact(error);
  // Assumes that adjacent values are one unit in the last place away. At a power of two, the next
  // lower value is closer, which does no harm. NaN, which is never accepted, has no exponent and
  // gets the smallest step.
  const double step = std::ldexp(1.0, std::ilogb(std::max(0x1p-126f, std::abs(number))) - 7);
  Add(number, expected, NearestBf16(expected - error), NearestBf16(expected + error),
      Needed(number - step, number, number + step, expected), error);
}

void Comparison::AddE4m3(uint8_t got, double expected, double error) {
  const float number = ToFloat(Float8E4M3{got});
  const double step =
      std::ldexp(1.0, std::max(std::ilogb(std::max(std::abs(number), 0x1p-9f)), -6) - 3);
  const double below = number == -kFloat8E4M3Max ? -INFINITY : number - step;
  const double above = number == kFloat8E4M3Max ? INFINITY : number + step;
  Add(number, expected, NearestE4m3(expected - error), NearestE4m3(expected + error),
      Needed(below, number, above, expected), error);
}

void Comparison::AddEqual(int64_t got, int64_t expected) {
  if (got == expected) return AddExact(0);
  const auto exact = static_cast<double>(expected);
  Add(static_cast<double>(got), exact, exact, exact, std::abs(static_cast<double>(got) - exact), 0);
}

void Comparison::AddWithin(double got, double expected, double error) {
  Add(got, expected, expected - error, expected + error, std::abs(got - expected), error);
}

}  // namespace sluice::checks
