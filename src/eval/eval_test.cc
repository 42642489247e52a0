#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "eval/answer_filters.h"
#include "eval/eval_prompts.h"
#include "eval/eval_questions.h"
#include "eval/eval_score.h"

namespace sluice {
namespace {

std::vector<EvalQuestion> Numbered(int count) {
  std::vector<EvalQuestion> questions;
  for (int i = 0; i < count; ++i)
    questions.push_back({"q" + std::to_string(i), "#### " + std::to_string(i)});
  return questions;
}

TEST(AnswerFilters, StrictMatch) {
  EXPECT_EQ(StrictMatch("3 + 4 = 7\n#### 7"), "7");
  EXPECT_EQ(StrictMatch("#### -1,234.5 apples #### 9"), "-1,234.5");
  EXPECT_EQ(StrictMatch("#### x\n#### 8"), "8");
  EXPECT_EQ(StrictMatch("#### -"), "[invalid]");
  EXPECT_EQ(StrictMatch("####7"), "[invalid]");
  EXPECT_EQ(StrictMatch("#### "), "[invalid]");
  EXPECT_EQ(StrictMatch(""), "[invalid]");
}

TEST(AnswerFilters, FlexibleExtract) {
  EXPECT_EQ(FlexibleExtract("It is 3 and then 14."), "14.");
  EXPECT_EQ(FlexibleExtract("It costs $18.00 in all"), "$18.00");
  EXPECT_EQ(FlexibleExtract("5 - 7 = -2"), "-2");
  EXPECT_EQ(FlexibleExtract("12...and so on..."), "...");
  EXPECT_EQ(FlexibleExtract("one 7"), "7");
  EXPECT_EQ(FlexibleExtract("none."), "[invalid]");
  EXPECT_EQ(FlexibleExtract("--$5"), "-$5");
}

TEST(AnswerFilters, ExactMatch) {
  EXPECT_TRUE(ExactMatch("1,234", "steps\n#### 1234"));
  EXPECT_TRUE(ExactMatch("$18.", "#### 18"));
  EXPECT_FALSE(ExactMatch("18.00", "#### 18"));
  EXPECT_FALSE(ExactMatch("[invalid]", "#### 18"));
  EXPECT_TRUE(ExactMatch("7", "a #### 1 b #### 7.\n") == false);  // the line break is kept
  EXPECT_TRUE(ExactMatch("ABC", "#### abc"));
}

TEST(EvalPrompts, ExamplesStandInFront) {
  const std::vector<EvalQuestion> examples = {{"1+1?", "#### 2"}};
  EXPECT_EQ(CompletionPrompt({"2+2?", "#### 4"}, examples),
            "Question: 1+1?\nAnswer: #### 2\n\nQuestion: 2+2?\nAnswer:");
  EXPECT_EQ(json::Write(ChatPrompt({"2+2?", ""}, examples, true)),
            R"([{"role":"user","content":"Question: 1+1?\nAnswer:"},)"
            R"({"role":"assistant","content":"#### 2"},)"
            R"({"role":"user","content":"Question: 2+2?\nAnswer:"}])");
  EXPECT_EQ(ChatPrompt({"2+2?", ""}, examples, false).as_array().size(), 1u);
}

TEST(EvalPrompts, TheQuestionIsNeverItsOwnExample) {
  const auto questions = Numbered(8);
  const auto examples = PickExamples(questions, 100, questions, {.count = 5});
  ASSERT_TRUE(examples) << examples.error().message;
  ASSERT_EQ(examples->size(), 8u);
  for (size_t i = 0; i < examples->size(); ++i) {
    EXPECT_EQ((*examples)[i].size(), 5u);
    for (const EvalQuestion& example : (*examples)[i]) EXPECT_NE(example, questions[i]);
  }
  // One question too few: five examples are needed, and one more, since the question itself may be
  // drawn.
  EXPECT_FALSE(PickExamples(Numbered(5), 1, Numbered(5), {.count = 5}));
}

TEST(EvalPrompts, RepeatedQuestionsAreDrawnAgain) {
  std::vector<EvalQuestion> questions(6, EvalQuestion{"same", "#### 1"});
  questions.push_back({"a", "#### 2"});
  questions.push_back({"b", "#### 3"});
  const auto examples = PickExamples(questions, 1, questions, {.count = 2});
  ASSERT_TRUE(examples) << examples.error().message;
  for (const EvalQuestion& example : (*examples)[0]) EXPECT_NE(example.question, "same");
}

TEST(EvalScore, TableIsThatOfLmEval) {
  // 1319 questions, with the numbers of correct answers of a published table.
  EvalScore score{.task = "gsm8k", .num_fewshot = 5, .num_questions = 1319, .filters = {}};
  score.filters = {{"flexible-extract", 1223 / 1319.0, 0.0072},
                   {"strict-match", 830 / 1319.0, 0.0133}};
  EXPECT_EQ(EvalTable(score),
            "|Tasks|Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|\n"
            "|-----|------:|----------------|-----:|-----------|---|-----:|---|-----:|\n"
            "|gsm8k|      3|flexible-extract|     5|exact_match|↑  |0.9272|±  |0.0072|\n"
            "|     |       |strict-match    |     5|exact_match|↑  |0.6293|±  |0.0133|\n");
}

TEST(EvalScore, CountsAndStandardError) {
  const auto questions = Numbered(4);
  const EvalScore score = ScoreAnswers(questions, {"#### 0", "it is 1", "#### 3 or 2", "nothing"});
  ASSERT_EQ(score.filters.size(), 2u);
  EXPECT_EQ(score.filters[0].filter, "flexible-extract");
  EXPECT_DOUBLE_EQ(score.filters[0].value, 0.75);
  EXPECT_DOUBLE_EQ(score.filters[1].value, 0.25);
  EXPECT_DOUBLE_EQ(*score.filters[1].standard_error, 0.25);
  EXPECT_FALSE(ScoreAnswers(Numbered(1), {"0"}).filters[0].standard_error);
}

TEST(EvalScore, Drops) {
  const auto questions = Numbered(4);
  const EvalScore good = ScoreAnswers(questions, {"#### 0", "#### 1", "#### 2", "#### 3"});
  const EvalScore worse = ScoreAnswers(questions, {"#### 0", "#### 1", "#### 2", "#### 9"});
  const json::Value baseline = EvalResultJson(good, json::Value());
  EXPECT_TRUE(FindDrops(good, baseline, 0)->empty());
  EXPECT_TRUE(FindDrops(worse, baseline, 0.25)->empty());
  const auto drops = FindDrops(worse, baseline, 0.2);
  ASSERT_EQ(drops->size(), 2u);
  EXPECT_DOUBLE_EQ((*drops)[0].now, 0.75);
  // A result of another name is used if it is the only one.
  const auto other = json::Parse(R"({"results": {"gsm8k": {"exact_match,strict-match": 1.0}}})");
  EXPECT_EQ(FindDrops(worse, *other, 0)->size(), 1u);
  EXPECT_FALSE(FindDrops(worse, *json::Parse("{}"), 0));
}

TEST(EvalQuestions, NamesFileAndLine) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("sluice_eval_questions_test-" + std::to_string(getpid()) + "-test.jsonl");
  const auto read = [&](const char* text) {
    std::ofstream(file) << text;
    return ReadEvalQuestions(file);
  };
  EXPECT_EQ(read("{\"question\": \"a\", \"answer\": \"b\", \"kind\": 1}\n\n")->size(), 1u);
  const auto missing = read("{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"a\"}\n");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("test.jsonl:2: expected a text \"answer\""),
            std::string::npos)
      << missing.error().message;
  EXPECT_FALSE(read(""));
  EXPECT_FALSE(read("[1]\n"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sluice
