#include "kernels/random_bits.h"

#include <gtest/gtest.h>

namespace sluice::kernels {
namespace {

TEST(RandomBits, AreThoseOfSplitMix64) {
  EXPECT_EQ(MixBits(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(MixBits(0x9E3779B97F4A7C15u), 0x6E789E6AA1B965F4u);
}

}  // namespace
}  // namespace sluice::kernels
