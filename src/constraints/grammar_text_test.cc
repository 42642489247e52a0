#include "constraints/grammar_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(GrammarTextTest, ChoicesAreQuotedAsTheGrammarWantsThem) {
  const std::string choices[] = {"yes", "a\"b", "c\\d", "line\nbreak"};
  EXPECT_EQ(ChoiceGrammar(choices), R"(root ::= "yes" | "a\"b" | "c\\d" | "line\u000abreak")");
}

TEST(GrammarTextTest, AGrammarIsLarkUnlessALineOfItDefinesAsGbnfDoes) {
  EXPECT_TRUE(IsLark("start: \"a\" | \"b\"\n"));
  EXPECT_TRUE(IsLark("start: \"a\"  # as root ::= x\n"));
  EXPECT_FALSE(IsLark("# comment\nroot ::= \"a\""));
}

TEST(GrammarTextTest, TheOlderLayoutOfTagsBecomesTheNewOne) {
  const auto tag = json::Parse(
      R"({"type":"structural_tag","structures":[{"begin":"<f>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f"]})");
  EXPECT_EQ(
      *StructuralTagText(*tag),
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[{"type":"tag","begin":"<f>","content":{"type":"json_schema","json_schema":{"type":"null"}},"end":"</f>"}]}})");
  EXPECT_FALSE(StructuralTagText(*json::Parse(R"({"type":"structural_tag"})")));
  EXPECT_FALSE(StructuralTagText(*json::Parse(R"({"structures":[{"begin":1}],"triggers":["x"]})")));
}

TEST(GrammarTextTest, RegexesThatWouldBeReadWronglyAreRefused) {
  const auto error = [](std::string_view regex) {
    const Status status = CheckConstraintText(ConstraintKind::kRegex, regex);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(error(R"([0-9]{2}-(?:a|b)[\]b]\d(?P<n>x))"), "");
  EXPECT_THAT(error("(?=a)b"), HasSubstr("look-around at character 0"));
  EXPECT_THAT(error("a(?<!b)"), HasSubstr("look-around at character 1"));
  EXPECT_THAT(error(R"((a)\1)"), HasSubstr("a back-reference"));
  EXPECT_THAT(error(R"(\bword)"), HasSubstr("a word boundary"));
  EXPECT_THAT(error("(?i)abc"), HasSubstr("an inline flag"));
  EXPECT_THAT(error(std::string_view("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_EQ(error(std::string(64, '(') + std::string(64, ')')), "");
  EXPECT_THAT(error(std::string(65, '(') + std::string(65, ')')), HasSubstr("64 nested groups"));
}

TEST(GrammarTextTest, GrammarsMayNotBeNestedTooDeep) {
  const std::string deep = "root ::= " + std::string(65, '(') + "\"a\"" + std::string(65, ')');
  EXPECT_FALSE(CheckConstraintText(ConstraintKind::kEbnf, deep));
  const std::string quoted = "root ::= \"" + std::string(65, '(') + "\"";
  EXPECT_TRUE(CheckConstraintText(ConstraintKind::kEbnf, quoted));
  EXPECT_FALSE(
      CheckConstraintText(ConstraintKind::kEbnf, std::string(kMaxConstraintBytes + 1, ' ')));
}

}  // namespace
}  // namespace sluice
