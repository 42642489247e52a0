#include "cli/signals.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using std::chrono::duration;

TEST(EndWithinDeathTest, EndsAProcessThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    EndWithin(duration<double>(0.05), "the device did not come to its end");
    std::this_thread::sleep_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1), "error: the device did not come to its end");
}

TEST(EndWithinDeathTest, LeavesAloneWhatEndsInTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    EndWithin(duration<double>(3600), "too late");
    std::exit(7);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace sluice::cli
