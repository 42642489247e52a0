#include "tensor/float8.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Returns the value of a code by the format's definition.
double Float8Of(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::nan("");
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

TEST(Float8E4M3, EveryCodeSurvives) {
  for (int code = 0; code < 256; ++code) {
    const float value = ToFloat(Float8E4M3{static_cast<uint8_t>(code)});
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), Float8Of(code)) << code;
    }
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(ToFloat8E4M3(value).bits, code);
  }
}

// Ties go to the even neighbour; other values to the nearer one.
TEST(Float8E4M3, RoundsToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float half = static_cast<float>((Float8Of(code) + Float8Of(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(ToFloat8E4M3(half).bits, even) << code;
    EXPECT_EQ(ToFloat8E4M3(-half).bits, even | 0x80) << code;
    EXPECT_EQ(ToFloat8E4M3(std::nextafter(half, 0.0f)).bits, code) << code;
    EXPECT_EQ(ToFloat8E4M3(std::nextafter(half, 1000.0f)).bits, code + 1) << code;
  }
  EXPECT_EQ(ToFloat8E4M3(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Float8E4M3, Saturates) {
  for (const float large : {449.0f, 464.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ToFloat8E4M3(large).bits, 0x7E) << large;
    EXPECT_EQ(ToFloat8E4M3(-large).bits, 0xFE) << large;
  }
  EXPECT_EQ(ToFloat8E4M3(std::numeric_limits<float>::quiet_NaN()).bits & 0x7F, 0x7F);
}

}  // namespace
}  // namespace sluice
