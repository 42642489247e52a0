#include "device/architectures.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Architectures, OfOneChipRunThereAlone) {
  EXPECT_TRUE(ArchitecturesCover("90a", 9, 0));
  EXPECT_FALSE(ArchitecturesCover("100a", 10, 3));
  EXPECT_FALSE(ArchitecturesCover("120a", 12, 1));
  EXPECT_FALSE(ArchitecturesCover("90a", 10, 0));
}

TEST(Architectures, OthersRunOnLaterOnesOfTheSameMajorVersion) {
  EXPECT_TRUE(ArchitecturesCover("80", 8, 0));
  EXPECT_TRUE(ArchitecturesCover("80", 8, 9));
  EXPECT_FALSE(ArchitecturesCover("89", 8, 6));
  EXPECT_FALSE(ArchitecturesCover("80", 9, 0));
  EXPECT_FALSE(ArchitecturesCover("80", 7, 5));
  EXPECT_TRUE(ArchitecturesCover("100", 10, 3));
}

TEST(Architectures, AnyOfAListSuffices) {
  EXPECT_TRUE(ArchitecturesCover("80 89 90a 120a", 9, 0));
  EXPECT_TRUE(ArchitecturesCover("90a;80", 8, 6));
  EXPECT_TRUE(ArchitecturesCover("90a-real, 80-real", 8, 0));
  EXPECT_FALSE(ArchitecturesCover("80 89 90a 120a", 10, 0));
  EXPECT_FALSE(ArchitecturesCover("", 9, 0));
  EXPECT_FALSE(ArchitecturesCover("90-virtual", 9, 0));
  EXPECT_FALSE(ArchitecturesCover("nonsense;9", 9, 0));
}

}  // namespace
}  // namespace sluice
