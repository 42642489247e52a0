#include "constraints/grammar_rules.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

// Returns the error message; "" if the grammar is accepted.
std::string ErrorOf(ConstraintKind kind, std::string_view grammar) {
  const Status checked = CheckGrammarRules(kind, grammar);
  return checked ? "" : checked.error().message;
}

constexpr ConstraintKind kEbnf = ConstraintKind::kEbnf;
constexpr ConstraintKind kLark = ConstraintKind::kLark;

TEST(GrammarRulesTest, RulesThatDeriveThemselvesAreRefused) {
  const char* const refused[] = {
      "root ::= root",
      "root ::= (root){0,}",
      "root ::= root*",
      "root ::= \"a\" | (((root)+)?)",
      "root ::= root{2,}",
      "root ::= root{3,4}*",
      "root ::= a\na ::= b*\nb ::= a+ | \"x\"",
      "root ::= a{2,3}\na ::= b{2,}\nb ::= (root){5}",
      "root ::= s\ns ::= s s | [a-z] | [^a] | s s s | \"\"",
      "root ::= e root e\ne ::= \"\" | \"x\"  # root ::= \"x\"",
      "root[max_tokens=5] ::= other\nother ::= root (= \"x\")",
      "root ::= [\"] | root | [\\]\"]",
      "a-b.c ::= d\nd ::= \"x\"* a-b.c?\nroot ::= d",
  };
  for (const char* grammar : refused) EXPECT_NE(ErrorOf(kEbnf, grammar), "") << grammar;
  const char* const lark[] = {
      "start: start*",
      "start: [start]",
      "?start: a | \"x\"\n!a.2: b~0..3\nb: start -> c",
      "start: start*\n%ignore /[ ]+/",
      "start: (a)\na: start~3",
      "start[lazy]: word*\nword: start? // x",
      "start: x start y\nx: /a/?\ny: \"\"i",
  };
  for (const char* grammar : lark) EXPECT_NE(ErrorOf(kLark, grammar), "") << grammar;
}

TEST(GrammarRulesTest, TheErrorNamesTheWay) {
  EXPECT_EQ(ErrorOf(kEbnf, "root ::= \"a\" b\nb ::= c | \"x\"\nc ::= \"y\"? b"),
            "the rule `b` derives itself without a character in between (b -> c -> b); every path "
            "from a rule back to itself must consume at least one character");
  EXPECT_EQ(ErrorOf(kLark, "start: start~2"),
            "the rule `start` repeats itself without end (start -> start); every path from a rule "
            "back to itself must consume at least one character");
}

TEST(GrammarRulesTest, RecursionThatTakesCharactersIsFine) {
  const char* const fine[] = {
      "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
      "root ::= s\ns ::= s s | \"a\"",
      "root ::= a{2}\na ::= \"x\" | root",
      "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"1\"",
      "root ::= \"root ::= root\"  # root ::= root\n",
      "root ::= ws \"a\" ws\nws ::= [ \\t]*",
      "root ::= TagDispatch((\"a\", b), loop_after_dispatch=true)\nb ::= \"x\" root",
      "root ::= [^\"\\]]* \"x\" root | \"\"",
      "",
      "not a grammar",
      "root ::= ((((",
  };
  for (const char* grammar : fine) EXPECT_EQ(ErrorOf(kEbnf, grammar), "") << grammar;
  const char* const lark[] = {
      "?start: sum\n?sum: product | sum \"+\" product\n?product: NUMBER | \"(\" sum \")\"\n"
      "NUMBER: /[0-9]+/\n%import common.WS\n%ignore WS\n",
      "start: \"a\"..\"z\" start | \"\"",
      "start: list{item}\nlist{x}: x (\",\" x)*\nitem: /start: start/ | \"[\" start \"]\"",
      "start: %json {\"start\": [\"start: start*\"]}",
      "start: <think> /[^<]*/ start -> start\n     | \"x\"",
  };
  for (const char* grammar : lark) EXPECT_EQ(ErrorOf(kLark, grammar), "") << grammar;
}

TEST(GrammarRulesTest, BracketsHaveALimit) {
  const auto nested = [](int depth) {
    return "root ::= " + std::string(static_cast<size_t>(depth), '(') + "\"a\"" +
           std::string(static_cast<size_t>(depth), ')');
  };
  EXPECT_EQ(ErrorOf(kEbnf, nested(64)), "");
  EXPECT_EQ(ErrorOf(kEbnf, nested(65)), "the grammar has more than 64 nested brackets");
  // A quote in a class does not begin a string.
  EXPECT_NE(ErrorOf(kEbnf, "root ::= [\"] " + nested(65).substr(9)), "");
  EXPECT_NE(ErrorOf(kEbnf, nested(100'000)), "");
}

// 60,000 rules, each of which refers to the next, and 500,000 repetition operators.
TEST(GrammarRulesTest, TimeIsLinear) {
  std::string chain = "root ::= r1\n", stars = "root ::= \"a\"" + std::string(500'000, '*') + "\n";
  for (int i = 1; i < 60'000; ++i)
    chain += "r" + std::to_string(i) + "::=r" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(ErrorOf(kEbnf, chain + "r60000 ::= \"\""), "");
  EXPECT_NE(ErrorOf(kEbnf, chain + "r60000 ::= r1"), "");
  EXPECT_EQ(ErrorOf(kEbnf, stars), "");
}

}  // namespace
}  // namespace sluice
