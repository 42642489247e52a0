#include "tensor/float16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Returns the value of a code by the format's definition.
double HalfOf(int code) {
  const int exponent = code >> 10 & 31;
  const int mantissa = code & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return code & 0x8000 ? -magnitude : magnitude;
}

TEST(Float16, EveryFiniteCodeSurvives) {
  for (int code = 0; code < 0x10000; ++code) {
    if ((code & 0x7FFF) >= 0x7C00) continue;
    const float value = ToFloat(Float16{static_cast<uint16_t>(code)});
    EXPECT_EQ(static_cast<double>(value), HalfOf(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 0x8000) << code;
    EXPECT_EQ(ToFloat16(value).bits, code);
  }
}

// Ties go to the even neighbour; other values to the nearer one.
TEST(Float16, RoundsToNearestEven) {
  for (int code = 0; code < 0x7BFF; ++code) {
    const float half = static_cast<float>((HalfOf(code) + HalfOf(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(ToFloat16(half).bits, even) << code;
    ASSERT_EQ(ToFloat16(-half).bits, even | 0x8000) << code;
    ASSERT_EQ(ToFloat16(std::nextafter(half, 0.0f)).bits, code) << code;
    ASSERT_EQ(ToFloat16(std::nextafter(half, 1e6f)).bits, code + 1) << code;
  }
}

TEST(Float16, Saturates) {
  for (const float large : {65505.0f, 65520.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ToFloat(ToFloat16(large)), 65504.0f) << large;
    EXPECT_EQ(ToFloat(ToFloat16(-large)), -65504.0f) << large;
  }
  EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace sluice
