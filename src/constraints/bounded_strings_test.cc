#include "constraints/bounded_strings.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr char kString[] = "basic_string_sub ::= ((\"\\\"\"))\n";
constexpr char kBody[] = " ::= (([^\\\"\\\\\\r\\n]))\n";
constexpr char kJsonBody[] = " ::= (([^\\u0000-\\u001f\\\"\\\\]))\n";

std::string Ebnf(const std::string& rules) {
  return kString + rules;
}

TEST(BoundedStringsTest, TheirBoundsAreTakenOut) {
  const auto grammar =
      TakeBoundsOut(Ebnf(std::string("root ::= ((\"\\\"\" a_characters{2, 50} \"\\\"\" \",\") | "
                                     "(\"\\\"\" b_characters{3, -1} \"\\\"\"))\n") +
                         "a_characters" + kBody + "b_characters" + kBody),
                    false);
  ASSERT_TRUE(grammar);
  EXPECT_EQ(grammar->bounds, (std::vector<StringBounds>{{3, StringBounds::kUnbounded}, {2, 50}}));
  EXPECT_EQ(grammar->ebnf, Ebnf(std::string("root ::= ((\"\\\"\" bounded_string_2 \",\") | "
                                            "(\"\\\"\" bounded_string_1))\n") +
                                "a_characters" + kJsonBody + "b_characters" + kJsonBody +
                                "bounded_string_1[temperature=1] ::= ((basic_string_sub))\n"
                                "bounded_string_2[temperature=2] ::= ((basic_string_sub))\n"));
}

TEST(BoundedStringsTest, WhereTheyMayOverlapTheGrammarCounts) {
  const std::string rules =
      "root ::= ((\"\\\"\" a_characters{2, 500} \"\\\"\") | (\"\\\"\" b_characters{0, 16} "
      "\"\\\"\"))\n";
  const auto grammar =
      TakeBoundsOut(Ebnf(rules + "a_characters" + kBody + "b_characters" + kBody), true);
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(grammar->bounds.empty());
  EXPECT_EQ(grammar->ebnf,
            Ebnf(std::string("root ::= ((\"\\\"\" a_characters_counted_500 \"\\\"\") | (\"\\\"\" "
                             "b_characters{0, 16} \"\\\"\"))\n") +
                 "a_characters" + kJsonBody + "b_characters" + kJsonBody +
                 "a_characters_counted_500[max_chars=500] ::= a_characters{2, -1}\n"));
}

TEST(BoundedStringsTest, EscapesBesideThemKeepTheirMeaning) {
  const auto grammar =
      TakeBoundsOut(Ebnf(std::string("root ::= \"gr\\xf6\\xdfe\\\\x\" \"\\\"\" a_characters{0, 20} "
                                     "\"\\\"\"\na_characters") +
                         kBody),
                    false);
  ASSERT_TRUE(grammar);
  EXPECT_NE(grammar->ebnf.find("root ::= \"gr\\u00f6\\u00dfe\\\\x\" \"\\\"\" bounded_string_1\n"),
            std::string::npos)
      << grammar->ebnf;
}

TEST(BoundedStringsTest, AllElseStaysAsItIs) {
  for (const char* text : {
           "root ::= a_items{0, 500}\n",
           "root ::= \"x_characters{0, 500}\" [\"] y_characters [z_characters{0, 500}]\n",
           "root ::= x_characters{0, 500}\nx_characters ::= (([\\0-\\U0010ffff]))\n",
       }) {
    EXPECT_FALSE(TakeBoundsOut(text, false)) << text;
  }
}

TEST(BoundedStringsTest, BranchesOfOneKindMayOverlap) {
  const auto may = [](const char* schema) { return MayOverlap(json::Parse(schema).value()); };
  EXPECT_FALSE(may(R"({"type":"string","maxLength":3})"));
  EXPECT_FALSE(may(R"({"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]})"));
  EXPECT_FALSE(may(R"({"properties":{"anyOf":{"type":["string","object"]}}})"));
  EXPECT_TRUE(may(R"({"anyOf":[{"type":"string","maxLength":3},{"enum":[1,"abcde"]}]})"));
  EXPECT_TRUE(may(R"({"anyOf":[{"const":"abcde"},{"$ref":"#/$defs/a"}]})"));
  EXPECT_TRUE(may(R"({"items":{"oneOf":[{"type":"object"},{"type":["object","null"]}]}})"));
  EXPECT_TRUE(may(R"({"propertyNames":{"maxLength":3}})"));
}

}  // namespace
}  // namespace sluice
