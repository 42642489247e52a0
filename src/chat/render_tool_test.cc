#include "chat/render_tool.h"

#include <sstream>

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RunRender, OneAnswerALine) {
  std::istringstream in(
      "{\"messages\": [], \"x\": \"h\\u00e9\\u2028\"}\n\n[]\n{\"x\": \"n\", \"bos_token\": \"c\", "
      "\"tools\": [1]}\nnonsense\n");
  std::ostringstream out;
  const auto compiled =
      ChatTemplate::Compile("{{ bos_token }}{{ x }}{{ tools is none }}{{ documents is none }}");
  ASSERT_TRUE(RunRender(compiled.value(), {}, json::Parse(R"({"bos_token": "b"})").value(), in, out)
                  .has_value());
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"text":"bh\u00e9\u2028TrueTrue"})");
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"error":"a line must be an object of variables, not array"})");
  std::getline(lines, line);
  EXPECT_EQ(line, R"({"text":"cnFalseTrue"})");
  std::getline(lines, line);
  EXPECT_EQ(line.substr(0, 10), R"({"error":")");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(RunRender, ATemplateThatDoesNotCompileAnswersEveryLine) {
  std::istringstream in("{}\n{}\n");
  std::ostringstream out;
  ASSERT_TRUE(RunRender(ChatTemplate::Compile("{% if %}"), {}, {}, in, out).has_value());
  const std::string line =
      "{\"error\":\"chat template, line 1: Expected an expression, got 'end of statement "
      "block'\"}\n";
  EXPECT_EQ(out.str(), line + line);
}

TEST(ParseCivilTime, Forms) {
  EXPECT_EQ(ParseCivilTime("2025-07-26T12:34:56").value().time_since_epoch(),
            std::chrono::seconds(1753533296));
  EXPECT_EQ(ParseCivilTime("2025-07-26 12:34:56").value(),
            ParseCivilTime("2025-07-26T12:34:56").value());
  EXPECT_TRUE(ParseCivilTime("2025-07-26").has_value());
  for (const char* bad : {"", "now", "2025-13-01", "2025-02-30", "2025-07-26T25:00:00",
                          "2025-07-26T12:34:56Z", "2025-07-26T12"}) {
    EXPECT_FALSE(ParseCivilTime(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace sluice
