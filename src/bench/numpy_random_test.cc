// Expected values: numpy 2.4.6.
#include "bench/numpy_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using ::testing::ElementsAre;

TEST(NumpyGenerator, IntegersOfDefaultRng) {
  NumpyGenerator random(3);
  EXPECT_THAT(random.Integers(63, 64, 3), ElementsAre(63, 63, 63));
  EXPECT_THAT(random.Integers(5, 100, 6), ElementsAre(82, 13, 22, 27, 22, 81));
  EXPECT_THAT(random.Integers(0, 512, 5), ElementsAre(445, 298, 20, 48, 170));
  EXPECT_THAT(random.Integers(0, 128256, 5), ElementsAre(55551, 79676, 61441, 33960, 20487));
}

TEST(NumpyGenerator, RangesAboveThirtyOneBits) {
  EXPECT_THAT(NumpyGenerator(123).Integers(0, 3000000000, 5),
              ElementsAre(2047055589, 1778843367, 161463055, 661079617, 765268567));
}

TEST(NumpyLegacyRandom, GammaOfEveryShape) {
  NumpyLegacyRandom random(0);
  for (double expected : {1.59174901632622, 2.5118615259316757, 1.8464462916081377})
    EXPECT_NEAR(random.Gamma(1.0, 2.0), expected, 1e-14);
  for (double expected : {0.5984770465589894, 0.9045287939194072, 3.2014044693081303})
    EXPECT_NEAR(random.Gamma(0.5, 2.0), expected, 1e-14);
  for (double expected : {0.46157644213524274, 0.15040828329868594, 0.29605992983281976})
    EXPECT_NEAR(random.Gamma(2.5, 0.1), expected, 1e-14);
}

}  // namespace
}  // namespace sluice::bench
