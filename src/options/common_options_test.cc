#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/help.h"
#include "options/names.h"
#include "options/sources.h"
#include "options/values.h"

namespace sluice::options {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string_view> LinesOf(const std::string& text) {
  return Split(text, '\n');
}

TEST(CommonOptions, OneLineEachThatFitsAScreen) {
  for (const Commands command : {kServe, kRun, kChat, kComplete, kBenchServe}) {
    const std::string text = CommonOptionHelp(command);
    const auto lines = LinesOf(text);
    EXPECT_LE(lines.size(), 56U);
    EXPECT_GE(lines.size(), 12U);
    for (std::string_view line : lines) EXPECT_LE(line.size(), 80U) << line;
  }
  EXPECT_EQ(CommonOptionHelp(kVersion), "");
}

TEST(CommonOptions, AllOptionsFitAScreen) {
  for (std::string_view line : LinesOf(OptionHelp(kServe))) {
    // Only a line with a single overlong word may exceed the screen width.
    const bool fits = line.size() <= 80 || line.find(' ', 8) == std::string_view::npos;
    EXPECT_TRUE(fits) << line;
  }
}

TEST(TakenFor, SaysWhichOptionABeginningWasReadAs) {
  EXPECT_EQ(TakenFor("--prot", Find("protect-all")), "--prot was taken for --protect-all");
  EXPECT_EQ(TakenFor("--max_model", Find("max-model-len")),
            "--max_model was taken for --max-model-len");
  EXPECT_EQ(TakenFor("--no-prot", Find("protect-all")), "--no-prot was taken for --no-protect-all");
  EXPECT_EQ(TakenFor("--port", Find("port")), "");
  EXPECT_EQ(TakenFor("--drain-timeout", Find("shutdown-timeout")), "");
  EXPECT_EQ(TakenFor("-tp", Find("tensor-parallel-size")), "");
}

TEST(TakenFor, IsInTheMessageOfAWrongValue) {
  const auto read = [](const std::vector<std::string>& words) {
    return Resolve(words, {}, kServe, Dialect::kSluice).error().message;
  };
  EXPECT_THAT(read({"m", "--max-model", "many"}),
              AllOf(StartsWith("--max-model: expected a whole number"),
                    HasSubstr("; --max-model was taken for --max-model-len")));
  EXPECT_THAT(read({"m", "--prot=3"}), HasSubstr("taken for --protect-all"));
  EXPECT_THAT(read({"m", "--served-model"}), HasSubstr("taken for --served-model-name"));
  EXPECT_THAT(read({"m", "--port", "x"}), StartsWith("--port: "));
}

TEST(Hosts, OnlyThisMachineUnlessAnotherProgramIsMeant) {
  const auto host = [](Dialect dialect) {
    return Resolve({"m"}, {}, kServe, dialect)->settings.Text("host");
  };
  EXPECT_EQ(host(Dialect::kSluice), "127.0.0.1");
  EXPECT_EQ(host(Dialect::kVllm), "0.0.0.0");
  EXPECT_EQ(host(Dialect::kTrtllm), "localhost");
}

TEST(Help, TakesTheNextWord) {
  EXPECT_EQ(Resolve({"--help", "all"}, {}, kServe, Dialect::kSluice)->help, "all");
  EXPECT_EQ(Resolve({"--help", "--port", "1"}, {}, kServe, Dialect::kSluice)->help, "");
}

}  // namespace
}  // namespace sluice::options
