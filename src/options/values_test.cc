#include "options/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/suggest.h"
#include "options/help.h"

namespace sluice::options {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Values, IntegersAsPeopleWriteThem) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},
      {"-1", -1},
      {"4096", 4096},
      {"1e3", 1000},
      {"64k", 64000},
      {"25.6k", 25600},
      {"64K", 65536},
      {"2M", 2 << 20},
      {"1.5m", 1500000},
      {"4G", 4LL << 30},
      {"16GiB", 16LL << 30},
      {"1.5GiB", 3LL << 29},
      {"2GB", 2000000000},
      {"0.1k", 100},
      {"1T", 1LL << 40},
      {"9223372036854775807", INT64_MAX},
  };
  for (const auto& [text, value] : cases) {
    const auto parsed = ParseInteger(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, value) << text;
  }
  for (const char* text :
       {"", "k", "1.5", "1.5K", "1kk", "64 k", "0x10", "nan", "inf", "1e40", "--1", "1.2345k"}) {
    EXPECT_FALSE(ParseInteger(text)) << text;
  }
}

TEST(Values, NumbersAndFlags) {
  EXPECT_EQ(*ParseNumber("0.9"), 0.9);
  for (const char* text : {"", "nan", "inf", "0.9x", "1e999"})
    EXPECT_FALSE(ParseNumber(text)) << text;
  EXPECT_TRUE(*ParseFlag("True"));
  EXPECT_FALSE(*ParseFlag("off"));
  EXPECT_FALSE(ParseFlag("maybe"));
}

TEST(Suggest, DistanceCountsSwapsAsOne) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("modle", "model"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

TEST(Suggest, NearestFirstAndNothingFarAway) {
  const std::vector<std::string> known = {"--max-num-seqs", "--max-model-len", "--port"};
  EXPECT_THAT(Nearest("--max-num-sqs", known), ElementsAre("--max-num-seqs"));
  EXPECT_THAT(Nearest("--prot", known), ElementsAre("--port"));
  EXPECT_THAT(Nearest("--gpu-count", known), IsEmpty());
}

TEST(Help, ShowsGroupsAndFilters) {
  const std::string all = OptionHelp(kServe);
  EXPECT_THAT(all, HasSubstr("Scheduling:"));
  EXPECT_THAT(all, HasSubstr("--enable-prefix-caching, --no-enable-prefix-caching [true]"));
  EXPECT_THAT(OptionHelp(kServe, "scheduling"), ::testing::Not(HasSubstr("--port")));
  EXPECT_EQ(OptionHelp(kServe, "nothing-like-this"), "");
  const std::string page = OptionsMarkdown();
  for (const Option& option : Table()) {
    EXPECT_THAT(page, HasSubstr("`--" + std::string(FlagName(option)) + "`"));
  }
}

}  // namespace
}  // namespace sluice::options
