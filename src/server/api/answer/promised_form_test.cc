// Tests that an answer has the form that its constraint guarantees. Covers every reasoning parser,
// open and closed thoughts in the prompt, and all ways to split the answer.
#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "constraints/deferred_constraint.h"
#include "constraints/grammar_text.h"
#include "constraints/xgrammar_engine.h"
#include "parsers/answer_reading_testing.h"

namespace sluice {
namespace {

// A constraint and all texts that it allows.
struct Form {
  ConstraintSpec spec;
  std::vector<std::string> texts;
};

std::vector<Form> Forms() {
  std::vector<std::string> codes, objects;
  for (const char* way : {"up", "down"}) {
    for (int i = 0; i < 100; ++i)
      codes.push_back(std::string(way) + "-" + std::to_string(i / 10) + std::to_string(i % 10));
  }
  for (const char* colour : {"amber", "teal"}) {
    for (const char* ok : {"true", "false"})
      objects.push_back(std::string(R"({"colour":")") + colour + R"(","ok":)" + ok + "}");
  }
  const std::vector<std::string> choices = {"Here it is", "<b", "ask again"};
  const std::string schema =
      R"({"type":"object","properties":{"colour":{"enum":["amber","teal"]},"ok":{"type":"boolean"}},)"
      R"("required":["colour","ok"],"additionalProperties":false})";
  return {{{ConstraintKind::kRegex, "(up|down)-[0-9]{2}"}, codes},
          {{ConstraintKind::kEbnf, ChoiceGrammar(choices)}, choices},
          {{ConstraintKind::kJsonSchema, schema, /*any_whitespace=*/false}, objects}};
}

// Returns a vocabulary of characters, the parser's marks, parts of these marks, and marks with text
// around them.
Vocabulary VocabularyFor(const ReasoningFormat& format) {
  std::set<std::string> tokens = {"<|end|>", "<|start|>assistant", "<|call|>", "<|message|>",
                                  "<tool_call>"};
  for (char c = ' '; c < 127; ++c) tokens.insert(std::string(1, c));
  tokens.insert("\n");
  for (const auto* marks : {&format.start, &format.end, &format.call_marks}) {
    for (const std::string& mark : *marks) {
      tokens.insert({mark, mark + "\n", mark + "{", "a" + mark});
      for (size_t half : {mark.size() / 2, mark.size() - 1}) {
        tokens.insert({mark.substr(0, half), mark.substr(half), mark.substr(half) + "\n"});
      }
    }
  }
  if (!format.before_end.empty())
    tokens.insert({"final", "analysis", "commentary", format.before_end});
  tokens.erase("");
  Vocabulary vocabulary;
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  vocabulary.tokens.emplace_back("<eos>");
  vocabulary.size = static_cast<int32_t>(vocabulary.tokens.size());
  vocabulary.end_tokens = {vocabulary.size - 1};
  return vocabulary;
}

class PromisedFormTest : public testing::TestWithParam<std::string_view> {
 protected:
  // Samples like a model that prefers marks and the end token. Returns the tokens, including the
  // end token if it was reached.
  std::vector<int32_t> Generate(const Constraint& constraint) {
    const auto matcher = constraint.NewMatcher();
    std::vector<uint32_t> mask(MaskWords(vocabulary_.size));
    std::vector<int32_t> answer;
    const auto allowed = [&](int32_t id) {
      return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    };
    while (answer.size() < 60 && !matcher->is_finished()) {
      EXPECT_TRUE(matcher->FillMask(mask));
      std::vector<int32_t> all, marks;
      for (int32_t id = 0; id < vocabulary_.size; ++id) {
        if (!allowed(id)) continue;
        all.push_back(id);
        if (vocabulary_.tokens[static_cast<size_t>(id)].size() > 1) marks.push_back(id);
      }
      const std::vector<int32_t>& from = marks.empty() || random_() % 3 == 0 ? all : marks;
      if (from.empty()) {
        ADD_FAILURE() << "no token is allowed after " << TextOf(answer);
        break;
      }
      int32_t next = from[random_() % from.size()];
      if (allowed(vocabulary_.end_tokens[0]) && random_() % 2 == 0)
        next = vocabulary_.end_tokens[0];
      EXPECT_TRUE(matcher->Advance(next));
      answer.push_back(next);
    }
    return answer;
  }

  std::string TextOf(std::span<const int32_t> tokens) const {
    std::string text;
    for (const int32_t token : tokens) {
      if (token != vocabulary_.end_tokens[0])
        text += vocabulary_.tokens[static_cast<size_t>(token)];
    }
    return text;
  }

  std::mt19937 random_{11};
  Vocabulary vocabulary_;
};

TEST_P(PromisedFormTest, HoldsWhereverTheAnswerIsCut) {
  const ReasoningParser& parser = *FindReasoningParser(GetParam());
  const ReasoningFormat& format = parser.format;
  vocabulary_ = VocabularyFor(format);
  const auto engine = MakeXgrammarEngine(vocabulary_);
  const auto tokens = std::make_shared<const ThoughtTokens>(
      ThoughtMarks{format.start, format.end, format.before_end}, vocabulary_.size,
      [this](int32_t id) { return vocabulary_.tokens[static_cast<size_t>(id)]; },
      vocabulary_.end_tokens, std::vector<int32_t>());
  int ended = 0, thoughts = 0;
  for (const Form& form : Forms()) {
    const auto constraint = engine->Compile(form.spec);
    ASSERT_TRUE(constraint) << constraint.error().message;
    for (const bool open : {false, true}) {
      if (open && parser.channels != nullptr) continue;
      for (int round = 0; round < 6; ++round) {
        AnswerReaderOptions options = ParserOptions("", GetParam());
        options.constrained = true;
        const std::string turn = open             ? format.start.front()
                                 : round % 2 == 0 ? ""
                                                  : format.start[0] + format.end[0];
        options.prompt = turn;
        AnswerReader first(options);
        const AnswerStart start{.inside_thought = first.in_marked_thought(),
                                .may_think = parser.channels != nullptr || turn.empty()};
        ASSERT_EQ(start.inside_thought, open);
        const std::vector<int32_t> answer = Generate(*AfterThought(*constraint, tokens, start));
        for (size_t cut = 1; cut <= answer.size(); ++cut) {
          const std::string text = TextOf(std::span(answer).first(cut));
          SCOPED_TRACE(text);
          const bool is_over = answer[cut - 1] == vocabulary_.end_tokens[0];
          const ReadParts whole = ReadInPieces(options, text, 0, random_, !is_over);
          ASSERT_EQ(ReadInPieces(options, text, 4, random_, !is_over), whole);
          ended += is_over ? 1 : 0;
          thoughts += is_over && !whole.reasoning.empty() ? 1 : 0;
          const bool holds = std::ranges::any_of(form.texts, [&](const std::string& known) {
            return is_over ? known == whole.content : known.starts_with(whole.content);
          });
          ASSERT_TRUE(holds) << whole.content;
        }
      }
    }
  }
  EXPECT_GT(ended, 8) << "answers that came to their end";
  EXPECT_GT(thoughts, 1) << "and had thought before";
}

std::vector<std::string_view> ParserNames() {
  std::vector<std::string_view> names;
  for (const ReasoningParser& parser : ReasoningParsers()) names.push_back(parser.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllParsers, PromisedFormTest, testing::ValuesIn(ParserNames()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice
