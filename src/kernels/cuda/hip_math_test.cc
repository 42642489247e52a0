#include "kernels/cuda/hip_math.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace sluice::hip_math {
namespace {

// The error of a result, in units of F32's last place.
double Steps(float found, double expected) {
  const auto nearest = static_cast<float>(expected);
  const double step = std::fabs(
      double{std::nextafter(nearest, std::numeric_limits<float>::infinity())} - double{nearest});
  return std::fabs(double{found} - expected) / step;
}

TEST(HipMath, SineAndCosineAreRoundedOnce) {
  for (double x = -1.0e6; x < 1.0e6; x = x < -1.0 || x >= 1.0 ? x + 12.345678 : x + 1.0e-3) {
    const auto argument = static_cast<float>(x);
    EXPECT_LE(Steps(Sine(argument), std::sin(double{argument})), 0.5001) << argument;
    EXPECT_LE(Steps(Cosine(argument), std::cos(double{argument})), 0.5001) << argument;
  }
  for (const float x : {0x1p-140f, 0x1p30f, 1.57079637f, 0.785398185f, 3.14159274f}) {
    EXPECT_LE(Steps(Sine(x), std::sin(double{x})), 0.5001) << x;
    EXPECT_LE(Steps(Cosine(x), std::cos(double{x})), 0.5001) << x;
  }
  EXPECT_EQ(Sine(0.0f), 0.0f);
  EXPECT_EQ(Cosine(0.0f), 1.0f);
}

TEST(HipMath, TheLogarithmIsRoundedOnce) {
  for (float x = 0x1p-60f; x < 0x1p100f; x *= 1.0371f) {
    EXPECT_LE(Steps(LogOnePlus(x), std::log1p(double{x})), 0.5001) << x;
    if (x < 1.0f) {
      EXPECT_LE(Steps(LogOnePlus(-x), std::log1p(-double{x})), 0.5001) << -x;
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(LogOnePlus(kInfinity), kInfinity);
  EXPECT_EQ(LogOnePlus(-1.0f), -kInfinity);
  EXPECT_TRUE(std::isnan(LogOnePlus(-2.0f)));
  EXPECT_TRUE(std::isnan(LogOnePlus(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(LogOnePlus(0.0f), 0.0f);
}

}  // namespace
}  // namespace sluice::hip_math
