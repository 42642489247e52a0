#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kGibibyte = int64_t{1} << 30;

TEST(ProgressText, FitsEveryWindow) {
  for (int columns = 1; columns <= 200; ++columns) {
    for (const int64_t done : {int64_t{0}, kGibibyte / 3, kGibibyte}) {
      const std::string text =
          ProgressText("downloading", done, kGibibyte, 1000, ProgressUnit::kBytes, columns);
      // In an unrealistically narrow window, the name may not fit.
      EXPECT_LE(text.size(), static_cast<size_t>(std::max(columns - 1, 12))) << columns << text;
    }
  }
}

TEST(ProgressText, SaysAllThatThereIsRoomFor) {
  EXPECT_EQ(ProgressText("loading", kGibibyte / 2, kGibibyte, 2, ProgressUnit::kBytes, 120),
            "loading [###############...............]  50 %  512.00 MiB of 1.00 GiB  256.00 MiB/s  "
            "2 s left");
  const std::string usual =
      ProgressText("loading", kGibibyte / 2, kGibibyte, 2, ProgressUnit::kBytes, 80);
  EXPECT_THAT(usual, HasSubstr("512.00 MiB of 1.00 GiB  256.00 MiB/s  2 s left"));
  const std::string narrow =
      ProgressText("loading", kGibibyte / 2, kGibibyte, 2, ProgressUnit::kBytes, 40);
  EXPECT_THAT(narrow, StartsWith("loading"));
  EXPECT_THAT(narrow, HasSubstr(" 50 %"));
  EXPECT_THAT(narrow, Not(HasSubstr("left")));
}

TEST(ProgressText, CountsTokensAsTokens) {
  const std::string text = ProgressText("comparing", 2048, 4096, 1, ProgressUnit::kTokens, 100);
  EXPECT_THAT(text, HasSubstr("2048 of 4096 tokens  2048 tokens/s"));
  EXPECT_THAT(text, Not(HasSubstr("iB")));
}

TEST(ProgressText, LongTimesAreNoSeconds) {
  EXPECT_THAT(ProgressText("x", 1, 1001, 1, ProgressUnit::kBytes, 120), HasSubstr("17 min left"));
  EXPECT_THAT(ProgressText("x", 1, 100001, 1, ProgressUnit::kBytes, 120), HasSubstr("28 h left"));
}

}  // namespace
}  // namespace sluice::cli
