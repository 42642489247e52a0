#include "kernels/work_queue.h"

#include <vector>

#include <gtest/gtest.h>

namespace sluice::kernels {
namespace {

// A step with thousands of sequences has thousands of parts and units. If each unit searched all
// parts, the search would take longer than the computation.
TEST(PartOfUnit, LooksAtALogarithmOfTheParts) {
  std::vector<int64_t> first_units;
  int64_t units = 0;
  for (int64_t part = 0; part < 4096; ++part) {
    first_units.push_back(units);
    units += part % 3;  // some parts have no unit
  }
  int64_t looks = 0;
  const auto first_unit = [&looks](int64_t first) {
    ++looks;
    return first;
  };
  int64_t unit = 0;
  for (int64_t part = 0; part < 4096; ++part) {
    for (int64_t i = 0; i < part % 3; ++i, ++unit) {
      const int64_t& found = PartOfUnit(first_units, unit, first_unit);
      ASSERT_EQ(&found - first_units.data(), part) << unit;
    }
  }
  EXPECT_LE(looks, units * 13);
}

}  // namespace
}  // namespace sluice::kernels
