#include "constraints/xgrammar_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include "base/json.h"
#include "base/work_budget.h"
#include "constraints/vocabulary_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class XgrammarEngineTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Constraint> Compile(ConstraintKind kind, std::string text,
                                            bool any_whitespace = true) {
    auto compiled = engine_->Compile({kind, std::move(text), any_whitespace});
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled ? *compiled : nullptr;
  }
  std::string ErrorOf(ConstraintKind kind, std::string text) {
    const auto compiled = engine_->Compile({kind, std::move(text)});
    return compiled ? "" : compiled.error().message;
  }
  std::vector<uint32_t> MaskOf(TokenMatcher& matcher) {
    std::vector<uint32_t> mask(MaskWords(vocabulary_.size));
    EXPECT_TRUE(matcher.FillMask(mask));
    return mask;
  }
  std::set<std::string> Allowed(TokenMatcher& matcher) {
    const std::vector<uint32_t> mask = MaskOf(matcher);
    std::set<std::string> allowed;
    for (int32_t id = 0; id < vocabulary_.size; ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.insert(vocabulary_.tokens.at(id));
    }
    return allowed;
  }
  // Whether the answer `text` satisfies the constraint.
  bool Accepts(const Constraint& constraint, std::string_view text) {
    const auto matcher = constraint.NewMatcher();
    for (const char c : text) {
      if (!matcher->Advance(static_cast<unsigned char>(c))) return false;
    }
    return matcher->Advance(vocabulary_.end_tokens[0]);
  }

  const Vocabulary vocabulary_ = ByteVocabulary({"true", "{\"", "\":", "ab", "\n\n"});
  std::unique_ptr<ConstraintEngine> engine_ = MakeXgrammarEngine(vocabulary_);
};

TEST_F(XgrammarEngineTest, MasksFollowASchema) {
  const auto constraint = Compile(
      ConstraintKind::kJsonSchema,
      R"({"type":"object","properties":{"ab":{"type":"boolean"}},"required":["ab"],"additionalProperties":false})",
      /*any_whitespace=*/false);
  const auto matcher = constraint->NewMatcher();
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"{", "{\""}));
  ASSERT_TRUE(matcher->Advance(257));  // {"
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"a", "ab"}));
  ASSERT_TRUE(matcher->Advance(259));  // ab
  ASSERT_TRUE(matcher->Advance(258));  // ":
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"t", "f", "true"}));
  EXPECT_FALSE(matcher->Advance('x'));
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"t", "f", "true"}));
  ASSERT_TRUE(matcher->Advance(256));  // true
  ASSERT_TRUE(matcher->Advance('}'));
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"<end>"}));
  EXPECT_FALSE(matcher->is_finished());
  ASSERT_TRUE(matcher->Advance(261));  // <end>
  EXPECT_TRUE(matcher->is_finished());
}

TEST_F(XgrammarEngineTest, AMatcherRollsBackAndBeginsAgain) {
  const auto constraint = Compile(ConstraintKind::kRegex, "a(b|c)d");
  const auto matcher = constraint->NewMatcher();
  ASSERT_TRUE(matcher->Advance('a'));
  const auto after_a = MaskOf(*matcher);
  ASSERT_TRUE(matcher->Advance('b'));
  ASSERT_TRUE(matcher->Advance('d'));
  ASSERT_TRUE(matcher->Advance(261));
  matcher->RollBack(3);
  EXPECT_FALSE(matcher->is_finished());
  EXPECT_EQ(MaskOf(*matcher), after_a);
  matcher->Reset();
  EXPECT_EQ(Allowed(*matcher), (std::set<std::string>{"a", "ab"}));
}

TEST_F(XgrammarEngineTest, EveryKindIsEnforced) {
  const auto schema =
      Compile(ConstraintKind::kJsonSchema, R"({"type":"integer","minimum":3,"maximum":12})");
  EXPECT_TRUE(Accepts(*schema, "12"));
  EXPECT_FALSE(Accepts(*schema, "13"));
  const auto ebnf = Compile(ConstraintKind::kEbnf, "root ::= \"a\" | \"b\" root");
  EXPECT_TRUE(Accepts(*ebnf, "bba"));
  EXPECT_FALSE(Accepts(*ebnf, "bb"));
  const auto lark = Compile(ConstraintKind::kLark, "start: \"SELECT \" COL\nCOL: \"a\" | \"b\"");
  EXPECT_TRUE(Accepts(*lark, "SELECT b"));
  EXPECT_FALSE(Accepts(*lark, "SELECT c"));
  const auto tag = Compile(
      ConstraintKind::kStructuralTag,
      R"({"type":"structural_tag","format":{"type":"tag","begin":"<b>","content":{"type":"json_schema","json_schema":{"type":"boolean"}},"end":"</b>"}})");
  EXPECT_TRUE(Accepts(*tag, "<b>true</b>"));
  EXPECT_FALSE(Accepts(*tag, "<b>1</b>"));
}

TEST_F(XgrammarEngineTest, WhiteSpaceInJsonHasAnEnd) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"null"}}},"required":["a"]})";
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":)" + schema + "}}";
  const auto json = Compile(ConstraintKind::kJsonSchema, schema);
  const auto tagged = Compile(ConstraintKind::kStructuralTag, tag);
  const std::pair<const Constraint*, int> cases[] = {{json.get(), kMaxWhitespace},
                                                     {tagged.get(), 16}};
  for (const auto& [constraint, most] : cases) {
    const auto with_space = [&, accepting = constraint](int count) {
      const std::string space = "\n" + std::string(static_cast<size_t>(count - 1), ' ');
      return Accepts(*accepting, "{" + space + "\"a\":" + space + "[" + space + "null" + space +
                                     "," + space + "null]" + space + "}");
    };
    EXPECT_TRUE(with_space(1));
    EXPECT_TRUE(with_space(most));
    EXPECT_FALSE(with_space(most + 1));
  }
}

// Tokens of white space, with and without other text, at every position up to the bound.
TEST_F(XgrammarEngineTest, MasksAndStepsOfWhiteSpaceAgree) {
  const std::string many(kMaxWhitespace + 3, ' ');
  const Vocabulary vocabulary =
      ByteVocabulary({"   ", "\n\n\"", " \"x", "\" ", many.c_str(), ("\"a" + many).c_str()});
  const auto engine = MakeXgrammarEngine(vocabulary);
  const auto constraint = *engine->Compile(
      {ConstraintKind::kJsonSchema, R"({"type":"array","items":{"type":"string"}})"});
  std::mt19937 random(3);
  std::vector<uint32_t> mask(MaskWords(vocabulary.size));
  for (int round = 0; round < 30; ++round) {
    const auto matcher = constraint->NewMatcher();
    for (int step = 0; step < 120 && !matcher->is_finished(); ++step) {
      ASSERT_TRUE(matcher->FillMask(mask));
      std::vector<int32_t> allowed;
      for (int32_t token = 0; token < vocabulary.size; ++token) {
        const bool may = (mask[token / 32] >> (token % 32) & 1) != 0;
        if (may) allowed.push_back(token);
        if (token == vocabulary.end_tokens[0]) continue;
        const bool advances = matcher->Advance(token);
        ASSERT_EQ(advances, may) << "step " << step << " token " << token;
        if (advances) matcher->RollBack(1);
      }
      ASSERT_FALSE(allowed.empty());
      // Chooses white space most of the time.
      std::vector<int32_t> spaces;
      for (const int32_t token : allowed) {
        if (token == ' ' || token == '\n' || token >= 256) spaces.push_back(token);
      }
      const auto& from = !spaces.empty() && random() % 4 != 0 ? spaces : allowed;
      ASSERT_TRUE(matcher->Advance(from[random() % from.size()]));
    }
  }
}

TEST_F(XgrammarEngineTest, LongBoundsOfStringsAreExact) {
  for (const int most : {16, 17, 500}) {
    const auto constraint = Compile(
        ConstraintKind::kJsonSchema,
        fmt::format(
            R"({{"type":"array","items":{{"type":"string","minLength":3,"maxLength":{}}}}})",
            most));
    const auto text = [](int first, int second) {
      return "[\"" + std::string(first, 'x') + "\", \"" + std::string(second, 'y') + "\"]";
    };
    EXPECT_TRUE(Accepts(*constraint, text(most, 3))) << most;
    EXPECT_TRUE(Accepts(*constraint, text(3, most))) << most;
    EXPECT_FALSE(Accepts(*constraint, text(most + 1, 3))) << most;
    EXPECT_FALSE(Accepts(*constraint, text(3, most + 1))) << most;
    EXPECT_FALSE(Accepts(*constraint, text(2, most))) << most;
    // The bound counts characters, not bytes.
    std::string letters;
    for (int i = 0; i < most; ++i) letters += "é";
    EXPECT_TRUE(Accepts(*constraint, "[\"" + letters + "\"]")) << most;
    EXPECT_FALSE(Accepts(*constraint, "[\"" + letters + "é\"]")) << most;
    // A token of several characters must also stay within the bound.
    const auto matcher = constraint->NewMatcher();
    for (const char c : "[\"" + std::string(most - 1, 'x'))
      ASSERT_TRUE(matcher->Advance(static_cast<unsigned char>(c)));
    EXPECT_EQ(Allowed(*matcher).count("a"), 1u);
    EXPECT_EQ(Allowed(*matcher).count("ab"), 0u);
    EXPECT_FALSE(matcher->Advance(259)) << "ab";
  }
}

TEST_F(XgrammarEngineTest, BoundedStringsAreJson) {
  for (
      const char* schema : {
          R"({"type":"string","minLength":1,"maxLength":3})",
          R"({"type":"string","minLength":1,"maxLength":30})",
          R"({"type":"string","minLength":1})",
          R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","minLength":2,"maxLength":30}]})",
      }) {
    const auto constraint = Compile(ConstraintKind::kJsonSchema, schema);
    EXPECT_TRUE(Accepts(*constraint, "\"a\x7f\""));
    for (char c = 0; c < 0x20; ++c) {
      EXPECT_FALSE(Accepts(*constraint, std::string{'"', 'a', c, '"'}))
          << schema << ", character " << int{c};
    }
  }
}

TEST_F(XgrammarEngineTest, AnEscapeIsOneCharacterOfABoundedString) {
  for (const int most : {3, 40}) {
    const auto constraint = Compile(
        ConstraintKind::kJsonSchema,
        fmt::format(
            R"({{"type":"object","properties":{{"a":{{"type":"string","minLength":2,"maxLength":{}}},"b":{{"type":"string","maxLength":1}}}},"required":["a","b"]}})",
            most));
    for (const char* character : {R"(\n)", R"(\")", R"(\\)", R"(\u00e9)", R"(\ud83d\ude00)", "é"}) {
      const auto text = [&](int first, int second) {
        std::string answer = R"({"a": ")";
        for (int i = 0; i < first; ++i) answer += character;
        answer += R"(", "b": ")";
        for (int i = 0; i < second; ++i) answer += character;
        return answer + "\"}";
      };
      EXPECT_TRUE(Accepts(*constraint, text(most, 1))) << character;
      EXPECT_TRUE(Accepts(*constraint, text(2, 0))) << character;
      EXPECT_FALSE(Accepts(*constraint, text(1, 1))) << character;
      EXPECT_FALSE(Accepts(*constraint, text(most + 1, 1))) << character;
      EXPECT_FALSE(Accepts(*constraint, text(most, 2))) << character;
    }
  }
}

// With random tokens: Advance accepts exactly the tokens of the mask, and the answer stays within
// the bounds.
TEST_F(XgrammarEngineTest, MasksAndStepsOfBoundedStringsAgree) {
  const Vocabulary vocabulary = ByteVocabulary({"ab",           "abcdefghijklmnopqrstuvwxyz",
                                                "\\n",          "\\\"",
                                                "a\\",          "\\u",
                                                "\\ud83d",      "\\ude00",
                                                "00e9",         "\\ud83d\\ude00",
                                                "é€",           "\", \"",
                                                "\",\"",        "x\", \"y",
                                                "[\"",          "[\"ab",
                                                "\"]",          "a\"]",
                                                "\", \"\", \"", "\\\", \"",
                                                "\"abcd",       "😀"});
  engine_ = MakeXgrammarEngine(vocabulary);
  std::mt19937 random(3);
  int num_finished = 0;
  for (const auto& [least, most] :
       {std::pair(0, 4), std::pair(2, 9), std::pair(3, 30), std::pair(1, -1)}) {
    const auto constraint = Compile(
        ConstraintKind::kJsonSchema,
        fmt::format(
            R"({{"type":"array","maxItems":9,"items":{{"type":"string","minLength":{}{}}}}})",
            least, most < 0 ? "" : fmt::format(R"(,"maxLength":{})", most)));
    for (int round = 0; round < 15; ++round) {
      const auto matcher = constraint->NewMatcher();
      std::vector<uint32_t> mask(MaskWords(vocabulary.size));
      std::string text;
      for (int step = 0; step < 40 && !matcher->is_finished(); ++step) {
        ASSERT_TRUE(matcher->FillMask(mask));
        std::vector<int32_t> allowed;
        for (int32_t token = 0; token < vocabulary.size; ++token) {
          const bool is_allowed = (mask[token / 32] >> (token % 32) & 1) != 0;
          const bool is_taken = matcher->Advance(token);
          if (is_taken) matcher->RollBack(1);
          ASSERT_EQ(is_taken, is_allowed) << text << " + token " << token;
          // Most tokens are long, which makes it hard to respect bounds.
          if (is_allowed && (token >= 256 || random() % 8 == 0 || token == '"' || token == ']'))
            allowed.push_back(token);
        }
        if (allowed.empty()) continue;
        const int32_t token = allowed[random() % allowed.size()];
        ASSERT_TRUE(matcher->Advance(token));
        if (!matcher->is_finished()) text += vocabulary.tokens[token];
      }
      const auto answer = matcher->is_finished() ? json::Parse(text) : json::Parse("[]");
      if (!answer) continue;  // half of a surrogate pair
      num_finished += matcher->is_finished() ? 1 : 0;
      for (const json::Value& item : answer->as_array()) {
        const std::string& value = item.as_string();
        const auto length =
            std::ranges::count_if(value, [](unsigned char c) { return (c & 0xC0) != 0x80; });
        EXPECT_GE(length, least) << text;
        EXPECT_TRUE(most < 0 || length <= most) << text;
      }
    }
  }
  EXPECT_GT(num_finished, 10);
}

TEST_F(XgrammarEngineTest, ABoundedStringIsRolledBack) {
  // The matcher works after its constraint and the engine are destroyed.
  const auto matcher = Compile(ConstraintKind::kJsonSchema,
                               R"({"type":"array","items":{"type":"string","maxLength":4}})")
                           ->NewMatcher();
  engine_.reset();
  const std::string text = R"(["a\u00e9", "abcd")";
  std::vector<std::vector<uint32_t>> masks;
  for (const char c : text) {
    masks.push_back(MaskOf(*matcher));
    ASSERT_TRUE(matcher->Advance(static_cast<unsigned char>(c)));
  }
  for (size_t i = text.size(); i-- > 0;) {
    matcher->RollBack(1);
    EXPECT_EQ(MaskOf(*matcher), masks[i]) << text.substr(0, i);
  }
  for (const char c : text) ASSERT_TRUE(matcher->Advance(static_cast<unsigned char>(c)));
  matcher->Reset();
  EXPECT_EQ(MaskOf(*matcher), masks[0]);
}

TEST_F(XgrammarEngineTest, NamesBesideLongStringsStayAsTheyAre) {
  const auto constraint = Compile(
      ConstraintKind::kJsonSchema,
      R"({"type":"object","properties":{"größe":{"type":"string","maxLength":600},"\n\u0007b":{"enum":["é1","\u2028c"]}},"required":["größe","\n\u0007b"],"additionalProperties":false})");
  EXPECT_TRUE(Accepts(*constraint, "{\"größe\": \"\", \"\\n\\u0007b\": \"é1\"}"));
  EXPECT_FALSE(Accepts(*constraint, "{\"gröe\": \"\", \"\\n\\u0007b\": \"é1\"}"));
}

TEST_F(XgrammarEngineTest, MatchersOfOneConstraintAreIndependent) {
  const auto constraint = Compile(ConstraintKind::kRegex, "[a-c]{3}");
  const auto one = constraint->NewMatcher();
  const auto two = constraint->NewMatcher();
  const auto before = MaskOf(*two);
  ASSERT_TRUE(one->Advance('a'));
  EXPECT_EQ(MaskOf(*two), before);
  EXPECT_GT(constraint->bytes(), 0u);
}

TEST_F(XgrammarEngineTest, WhatIsNotWellFormedIsRefusedWithTheReason) {
  EXPECT_THAT(ErrorOf(ConstraintKind::kEbnf, "root ::= ("), HasSubstr("EBNF"));
  EXPECT_NE(ErrorOf(ConstraintKind::kEbnf, "root ::= missing"), "");
  EXPECT_NE(ErrorOf(ConstraintKind::kRegex, "("), "");
  EXPECT_NE(ErrorOf(ConstraintKind::kRegex, "[a"), "");
  EXPECT_NE(ErrorOf(ConstraintKind::kJsonSchema, R"({"type":"array","minItems":4,"maxItems":1})"),
            "");
  EXPECT_NE(ErrorOf(ConstraintKind::kStructuralTag,
                    R"({"type":"structural_tag","format":{"type":"nope"}})"),
            "");
}

TEST_F(XgrammarEngineTest, WhatNoAnswerMeetsIsRefused) {
  EXPECT_EQ(ErrorOf(ConstraintKind::kJsonSchema, R"({"$ref":"#"})"), "no answer meets it");
  EXPECT_NE(ErrorOf(ConstraintKind::kEbnf, "root ::= root"), "");
  EXPECT_NE(ErrorOf(ConstraintKind::kEbnf, "root ::= a\na ::= root"), "");
}

TEST_F(XgrammarEngineTest, CompilingStopsAtItsLimits) {
  engine_ = MakeXgrammarEngine(vocabulary_,
                               {.compile = {.cpu_seconds = 0.05, .bytes = int64_t{64} << 20}});
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 20'000; ++i) schema += "\"p" + std::to_string(i) + R"(":{"type":"string"},)";
  schema += R"("q":{}}})";
  EXPECT_THAT(ErrorOf(ConstraintKind::kJsonSchema, schema), HasSubstr("more than 0.05 s"));
  EXPECT_EQ(ErrorOf(ConstraintKind::kRegex, "a+"), "");
  engine_ = MakeXgrammarEngine(vocabulary_, {.compile = {.cpu_seconds = 100, .bytes = 1 << 20}});
  EXPECT_THAT(ErrorOf(ConstraintKind::kJsonSchema, schema), HasSubstr("or 1 MiB to compile"));
}

TEST_F(XgrammarEngineTest, AMatcherThatWasStoppedSaysSoAndStaysStopped) {
  // This limit is enough for the first steps; the memory for the history of an answer grows in
  // larger and larger pieces.
  engine_ = MakeXgrammarEngine(vocabulary_, {.step = {.cpu_seconds = 100, .bytes = 1 << 16}});
  const auto matcher = Compile(ConstraintKind::kEbnf, "root ::= \"a\" root | \"b\"")->NewMatcher();
  std::vector<uint32_t> mask(MaskWords(vocabulary_.size));
  bool goes_on = true;
  for (int i = 0; i < 100'000 && goes_on; ++i) goes_on = matcher->Advance('a');
  EXPECT_FALSE(goes_on);
  EXPECT_FALSE(matcher->FillMask(mask));
  EXPECT_TRUE(matcher->is_stopped());
  matcher->Reset();
  EXPECT_FALSE(matcher->is_stopped());
  EXPECT_TRUE(matcher->Advance('a'));
  EXPECT_TRUE(matcher->FillMask(mask));
}

TEST_F(XgrammarEngineTest, CallsKeepToTheTimeThatTheyAreGiven) {
  const auto constraint = Compile(ConstraintKind::kEbnf, "root ::= s\ns ::= s s | [a-z] | [^a]");
  const auto matcher = constraint->NewMatcher();
  std::vector<uint32_t> mask(MaskWords(vocabulary_.size));
  matcher->LimitCalls(0.01);
  double longest = 0;
  for (int i = 0; i < 2000 && !matcher->is_stopped(); ++i) {
    const double before = matcher->cpu_seconds();
    if (matcher->Advance('b')) matcher->FillMask(mask);
    longest = std::max(longest, matcher->cpu_seconds() - before);
  }
  EXPECT_TRUE(matcher->is_stopped());
  // This bound allows for two calls, and for the time between two readings of the clock.
  EXPECT_LT(longest, 0.1);
}

// Recursion that the analysis of rules (grammar_rules.h) would not find is stopped by checks in the
// library's own accesses to the grammar.
TEST(XgrammarBudgetTest, RecursionInsideTheLibraryIsStopped) {
  const Vocabulary vocabulary = ByteVocabulary();
  const xgrammar::TokenizerInfo tokens(vocabulary.tokens, xgrammar::VocabType::RAW, vocabulary.size,
                                       vocabulary.end_tokens);
  xgrammar::GrammarCompiler compiler(tokens, /*max_threads=*/1, /*cache_enabled=*/false);
  constexpr WorkLimits kLimits{.cpu_seconds = 60, .bytes = int64_t{4} << 30};
  for (int i = 0; i < 3; ++i) {
    const WorkBudget budget(kLimits);
    EXPECT_THROW(compiler.CompileGrammar("root ::= (root){0,}"), StackLimitExceeded);
    EXPECT_THROW(compiler.CompileLark("start: start*"), StackLimitExceeded);
    EXPECT_NO_THROW(compiler.CompileGrammar("root ::= \"a\"{0,}"));
  }
}

}  // namespace
}  // namespace sluice
