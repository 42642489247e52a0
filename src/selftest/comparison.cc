#include "selftest/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::selftest {
namespace {

// To nearest by way of F32: a value is never taken to the far side of a tie, because bounds are
// wider than half a step of F32 wherever they are not 0, and exact values are numbers of F32.
float NearestBf16(double value) {
  return ToFloat(ToBFloat16(static_cast<float>(value)));
}
float NearestE4m3(double value) {
  return ToFloat(ToFloat8E4M3(static_cast<float>(value)));
}

}  // namespace

double Gamma(double roundings, double unit) {
  const double sum = roundings * unit;
  return sum < 1 ? sum / (1 - sum) : std::numeric_limits<double>::infinity();
}

void Comparison::Add(double got, double expected, double low, double high) {
  const int64_t index = count_++;
  const bool same_kind = std::isnan(got) == std::isnan(expected);
  const bool inside = std::isnan(expected) ? std::isnan(got) : low <= got && got <= high;
  const double infinity = std::numeric_limits<double>::infinity();
  double error = same_kind ? std::abs(got - expected) : infinity;
  if (std::isnan(error)) error = 0;  // both NaN, or the same infinity
  const double bound = std::max({high - expected, expected - low, 0.0});
  double ratio = 0;
  if (!inside) ratio = bound > 0 ? std::max(error / bound, 1.0) : infinity;
  if (inside && bound > 0) ratio = error / bound;
  if (ratio > worst_ratio_) {
    worst_ratio_ = ratio;
    worst_error_ = error;
    worst_bound_ = bound;
  }
  if (inside) return;
  if (failed_++ == 0) {
    first_failure_ = fmt::format("number {}: got {:.9g}, expected {:.9g} +- {:.3g}", index, got,
                                 expected, bound);
  }
}

void Comparison::AddF32(float got, double expected, double error) {
  Add(got, expected, static_cast<float>(expected - error), static_cast<float>(expected + error));
}

void Comparison::AddBf16(uint16_t got, double expected, double error) {
  Add(ToFloat(BFloat16{got}), expected, NearestBf16(expected - error),
      NearestBf16(expected + error));
}

void Comparison::AddE4m3(uint8_t got, double expected, double error) {
  Add(ToFloat(Float8E4M3{got}), expected, NearestE4m3(expected - error),
      NearestE4m3(expected + error));
}

void Comparison::AddEqual(int64_t got, int64_t expected) {
  const auto exact = static_cast<double>(expected);
  Add(static_cast<double>(got), exact, exact, exact);
}

}  // namespace sluice::selftest
