#include "server/api/constraint_check.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RegexMistake, FindsWhatCannotBeRead) {
  for (const char* good : {"", "[0-9]{3}", "(a|b)+", R"(\(\[)", "[]a]", "[^]]*", "(?:x)?", "(?i)a",
                           "a{2,3}", "[(]", R"([\]])", "a|b", "()"}) {
    EXPECT_FALSE(RegexMistake(good)) << good;
  }
  for (const char* bad : {"(", "a)", "[a", "*", "a|+", "(?", "\\", "((a)", "[^]"}) {
    EXPECT_TRUE(RegexMistake(bad)) << bad;
  }
}

TEST(GrammarMistake, FindsWhatCannotBeRead) {
  for (const char* good : {"root ::= \"a\" | \"b\"", "root ::= (\"a\" b)\nb ::= [a-z(]",
                           "start: \"x\"", "root ::= \"(\" # (\n"}) {
    EXPECT_FALSE(GrammarMistake(good)) << good;
  }
  for (const char* bad : {"", "root", "root ::= (", "root ::= \"a", "root ::= a)", "root ::= [a"}) {
    EXPECT_TRUE(GrammarMistake(bad)) << bad;
  }
}

}  // namespace
}  // namespace sluice
