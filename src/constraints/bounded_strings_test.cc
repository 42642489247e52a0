#include "constraints/bounded_strings.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(BoundedStringsTest, LongOnesAreCountedByTheMatcher) {
  EXPECT_EQ(CountBoundedStrings("root ::= ((\"\\\"\" root_characters{2, 500} \"\\\"\"))\n"
                                "root_characters ::= (([^\\\"\\\\]))\n"),
            "root ::= ((\"\\\"\" root_characters_counted_500 \"\\\"\"))\n"
            "root_characters ::= (([^\\\"\\\\]))\n"
            "root_characters_counted_500[max_chars=500] ::= root_characters{2, -1}\n");
}

TEST(BoundedStringsTest, EscapesBesideThemKeepTheirMeaning) {
  EXPECT_EQ(CountBoundedStrings("root ::= \"gr\\xf6\\xdfe\\\\x\" a_characters{0, 20}"),
            "root ::= \"gr\\u00f6\\u00dfe\\\\x\" a_characters_counted_20\n"
            "a_characters_counted_20[max_chars=20] ::= a_characters{0, -1}\n");
}

TEST(BoundedStringsTest, AllElseStaysAsItIs) {
  for (const char* text : {
           "root ::= a_characters{0, 16}\n",
           "root ::= a_characters{0, -1} b_items{0, 500}\n",
           "root ::= \"x_characters{0, 500}\" [\"] y_characters [z_characters{0, 500}]\n",
           "root ::= \"\\\"a_characters{0, 500}\"",
           "root ::= a_characters{600, 700}\n",
       }) {
    EXPECT_EQ(CountBoundedStrings(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice
