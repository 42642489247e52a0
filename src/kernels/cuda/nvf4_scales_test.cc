#include "kernels/cuda/nvf4_scales.h"

#include <cstdint>
#include <set>

#include <gtest/gtest.h>

namespace sluice::device {
namespace {

// The layout of scale factors in tensor memory and in cuBLASLt's VEC16_UE4M3, written out from its
// figure: rows 0, 32, 64 and 96 of a tile share 16 bytes, four scales each; the next 16 bytes are
// those of rows 1, 33, 65 and 97. Every kernel and both sides of every test use the same functions,
// so only literal numbers reveal a fault in these functions.
TEST(NvF4Scales, AreInTheOrderOfTensorCores) {
  struct Place {
    int64_t row, group, byte;
  };
  constexpr int64_t kGroups = 6;  // two tiles side by side; the second one is half empty
  for (const auto& [row, group, byte] :
       {Place{0, 0, 0}, Place{0, 1, 1}, Place{0, 3, 3}, Place{32, 0, 4}, Place{64, 0, 8},
        Place{96, 2, 14}, Place{1, 0, 16}, Place{33, 1, 21}, Place{31, 0, 496}, Place{127, 3, 511},
        Place{0, 4, 512}, Place{127, 5, 1021}, Place{128, 0, 1024}, Place{160, 5, 1541}}) {
    EXPECT_EQ(NvF4ScaleRow(row, kGroups) + NvF4ScaleGroup(group), byte) << row << ", " << group;
  }
  EXPECT_EQ(NvF4ScaleBytes(128, 4), 512);
  EXPECT_EQ(NvF4ScaleBytes(129, kGroups), 2048);
}

TEST(NvF4Scales, EachHasAPlaceOfItsOwn) {
  constexpr int64_t kRows = 200, kGroups = 7;
  std::set<int64_t> places;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t group = 0; group < kGroups; ++group)
      places.insert(NvF4ScaleRow(row, kGroups) + NvF4ScaleGroup(group));
  }
  EXPECT_EQ(std::ssize(places), kRows * kGroups);
  EXPECT_LT(*places.rbegin(), NvF4ScaleBytes(kRows, kGroups));
}

}  // namespace
}  // namespace sluice::device
