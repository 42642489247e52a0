#include "kernels/cuda/checks/comparison.h"

#include <cmath>

#include <gmock/gmock.h>

#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

using ::testing::HasSubstr;

TEST(Comparison, LeavesNoRoomAroundExactNumbers) {
  Comparison exact;
  exact.AddF32(1.5f, 1.5, 0);
  EXPECT_TRUE(exact.passed());
  exact.AddF32(std::nextafter(1.5f, 2.0f), 1.5, 0);
  EXPECT_FALSE(exact.passed());
  EXPECT_THAT(exact.first_failure(), HasSubstr("number 1"));
}

TEST(Comparison, TakesWhatSomeNumberInTheBoundRoundsTo) {
  const auto passes = [](uint16_t got, double expected, double error) {
    Comparison comparison;
    comparison.AddBf16(got, expected, error);
    return comparison.passed();
  };
  // Neighbours of BF16 above 1: 1 and 1 + 2^-7.
  const uint16_t low = ToBFloat16(1).bits, high = ToBFloat16(1 + 0x1p-7f).bits;
  EXPECT_TRUE(passes(low, 1 + 0x1p-9, 0));
  EXPECT_FALSE(passes(high, 1 + 0x1p-9, 0));
  EXPECT_FALSE(passes(high, 1 + 0x1p-9, 0x1p-10));
  EXPECT_TRUE(passes(high, 1 + 0x1p-9, 0x1p-8));
  EXPECT_FALSE(passes(0x7FC0, 1, 1)) << "NaN";
  Comparison codes;
  codes.AddE4m3(ToFloat8E4M3(16).bits, 16.5, 0);
  EXPECT_TRUE(codes.passed());
  codes.AddE4m3(ToFloat8E4M3(18).bits, 16.5, 0.1);
  EXPECT_FALSE(codes.passed());
}

TEST(Comparison, TakesNaNForNaNAlone) {
  Comparison comparison;
  comparison.AddF32(std::nanf(""), std::nan(""), 0);
  EXPECT_TRUE(comparison.passed());
  comparison.AddF32(std::nanf(""), 1, 10);
  EXPECT_FALSE(comparison.passed());
  EXPECT_TRUE(std::isinf(comparison.worst_error()));
  EXPECT_FALSE(Comparison().passed()) << "nothing was compared";
}

}  // namespace
}  // namespace sluice::checks
