#include "server/api/answer/parsing_plan.h"

#include <random>

#include <gtest/gtest.h>

#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

// Every byte is a token; the last token is the end token.
Vocabulary ByteVocabulary() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.emplace_back("<end>");
  vocabulary.end_tokens = {256};
  vocabulary.size = 257;
  return vocabulary;
}

// Returns an answer of random bytes that the constraint allows; "" if it does not end.
std::string RandomAnswer(const Constraint& constraint, std::mt19937& random) {
  const auto matcher = constraint.NewMatcher();
  std::vector<uint32_t> mask(MaskWords(257));
  std::string answer;
  while (answer.size() < 2000) {
    if (!matcher->FillMask(mask)) return "";
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id <= 256; ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
    }
    if (allowed.empty()) return "";
    const int32_t next = allowed[random() % allowed.size()];
    if (allowed.back() == 256 || next == 256) return answer;
    if (!matcher->Advance(next)) return "";
    answer += static_cast<char>(next);
  }
  return "";
}

// A parser reads every call that its grammar allows.
TEST(ParsingPlanTest, CallsUnderAGrammarAreReadByItsParser) {
  const auto schema = json::Parse(
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99},"b":{"type":"boolean"}},)"
      R"("required":["a","b"],"additionalProperties":false})");
  const auto tools =
      json::Parse(R"([{"type":"function","function":{"name":"f_1","parameters":)" +
                  json::Write(*schema) + R"(}},{"type":"function","function":{"name":"g",)" +
                  R"("parameters":)" + json::Write(*schema) + "}}]");
  ASSERT_TRUE(schema && tools) << "the test's own JSON";
  const std::vector<CallableTool> callable = {{"f_1", *schema}, {"g", *schema}};
  const auto engine = MakeXgrammarEngine(ByteVocabulary());
  std::mt19937 random(5);
  const auto check = [&](const ToolParser& parser, CallGrammar grammar) {
    if (!grammar.thought_begin.empty()) {
      const json::Value tag = CallTag(grammar, callable, CallCount::kAtLeastOne, /*parallel=*/true);
      EXPECT_TRUE(engine->Compile({ConstraintKind::kStructuralTag, json::Write(tag)}));
      grammar.thought_begin = "";  // random bytes would never end a thought
    }
    for (const CallCount count : {CallCount::kOne, CallCount::kAtLeastOne}) {
      ConstraintSpec spec;
      spec.kind = ConstraintKind::kStructuralTag;
      spec.text = json::Write(CallTag(grammar, callable, count, /*parallel=*/false));
      spec.any_whitespace = false;
      const auto constraint = engine->Compile(spec);
      ASSERT_TRUE(constraint) << constraint.error().message;
      for (int i = 0; i < 3; ++i) {
        const std::string text = RandomAnswer(**constraint, random);
        SCOPED_TRACE(text);
        AnswerReader reader({.tools = &parser,
                             .types = std::make_shared<const ToolTypes>(*tools),
                             .prompt = {},
                             .thinking = {}});
        std::vector<ParserEvent> events = reader.Push(text);
        for (ParserEvent& event : reader.Finish()) events.push_back(std::move(event));
        ASSERT_EQ(reader.calls(), 1);
        std::string arguments;
        for (const ParserEvent& event : events) {
          if (event.kind == ParserEvent::Kind::kCallBegin) {
            EXPECT_TRUE(event.text == "f_1" || event.text == "g") << event.text;
          } else {
            EXPECT_EQ(event.kind, ParserEvent::Kind::kCallArguments);
            arguments += event.text;
          }
        }
        const auto value = json::Parse(arguments);
        ASSERT_TRUE(value) << arguments;
        ASSERT_NE(value->Find("a"), nullptr) << arguments;
        EXPECT_TRUE(value->Find("a")->is_integer()) << arguments;
        ASSERT_NE(value->Find("b"), nullptr) << arguments;
        EXPECT_TRUE(value->Find("b")->is_bool()) << arguments;
      }
    }
  };
  int grammars = 0;
  for (const ToolParser& parser : ToolParsers()) {
    SCOPED_TRACE(parser.name);
    for (const CallGrammar* grammar : {&parser.grammar, &parser.newer_grammar}) {
      if (grammar->trigger.empty()) continue;
      ++grammars;
      check(parser, *grammar);
    }
  }
  EXPECT_GT(grammars, 10);
}

}  // namespace
}  // namespace sluice
