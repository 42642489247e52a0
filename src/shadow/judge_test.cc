#include "shadow/judge.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "shadow/answer.h"
#include "shadow/asked.h"
#include "shadow/exchange_queue.h"
#include "shadow/findings.h"

namespace sluice::shadow {
namespace {

constexpr int32_t kEnd = 9;
const std::vector<int32_t> kEnds = {kEnd};

// A position at which `chosen` was taken among tokens with these log probabilities.
TokenLogprobs Position(int32_t chosen, std::vector<std::pair<int32_t, float>> top) {
  TokenLogprobs position{.token = chosen, .logprob = -20, .rank = 99, .top = std::move(top)};
  for (const auto& [token, logprob] : position.top) {
    if (token == chosen) position.logprob = logprob;
  }
  return position;
}

Ending Goes() {
  return {.by_end_token = false, .end_tokens = kEnds, .min_tokens = 0};
}

TEST(JudgeGreedy, SaysWhatADifferenceIs) {
  const Scores equal{.positions = {Position(1, {{1, -0.1F}, {2, -2.4F}})}, .next = {}};
  EXPECT_EQ(JudgeGreedy(equal, equal, Goes(), 0.1).verdict, Verdict::kEqual);

  const Scores close{.positions = {Position(2, {{1, -0.70F}, {2, -0.75F}})}, .next = {}};
  Judgement judged = JudgeGreedy(close, close, Goes(), 0.1);
  EXPECT_EQ(judged.verdict, Verdict::kTie);
  EXPECT_NEAR(judged.worst->gap(), 0.05, 1e-6);
  EXPECT_EQ(JudgeGreedy(close, close, Goes(), 0.01).verdict, Verdict::kReal);

  const Scores far{.positions = {Position(2, {{1, -0.1F}, {2, -2.4F}})}, .next = {}};
  judged = JudgeGreedy(far, far, Goes(), 0.1);
  EXPECT_EQ(judged.verdict, Verdict::kReal);
  EXPECT_EQ(judged.worst->upstream, 2);
  EXPECT_EQ(judged.worst->ours, 1);
}

TEST(JudgeGreedy, FindsThatOursIsTheOddOne) {
  // The reference prefers the upstream's token by far, so `ours` is wrong.
  const Scores ours{.positions = {Position(1, {{2, -0.3F}, {1, -1.4F}})}, .next = {}};
  const Scores reference{.positions = {Position(1, {{1, -0.1F}, {2, -2.4F}})}, .next = {}};
  const Judgement judged = JudgeGreedy(ours, reference, Goes(), 0.1);
  EXPECT_EQ(judged.verdict, Verdict::kReal);
  EXPECT_EQ(judged.worst->upstream_gap, 0);
  EXPECT_NEAR(judged.worst->ours_gap, 2.3, 1e-5);
}

TEST(JudgeGreedy, TheFirstBeyondEpsilonIsShown) {
  const Scores scores{
      .positions = {Position(2, {{1, -0.70F}, {2, -0.75F}}), Position(2, {{1, -0.1F}, {2, -2.4F}}),
                    Position(2, {{1, -0.01F}, {2, -5.0F}})},
      .next = {}};
  const Judgement judged = JudgeGreedy(scores, scores, Goes(), 0.1);
  EXPECT_EQ(judged.num_departures, 3);
  EXPECT_EQ(judged.worst->position, 1);
}

TEST(JudgeGreedy, JudgesTheEndOfAnAnswer) {
  Scores scores{.positions = {}, .next = {{1, -0.1F}, {kEnd, -2.4F}}};
  Ending ending{.by_end_token = true, .end_tokens = kEnds, .min_tokens = 0};
  EXPECT_EQ(JudgeGreedy(scores, scores, ending, 0.1).verdict, Verdict::kReal);
  EXPECT_EQ(JudgeGreedy(scores, scores, Goes(), 0.1).verdict, Verdict::kEqual);
  scores.next = {{kEnd, -0.1F}, {1, -2.4F}};
  EXPECT_EQ(JudgeGreedy(scores, scores, ending, 0.1).verdict, Verdict::kEqual);
  // Before min_tokens an end token is not chosen.
  const Scores early{.positions = {Position(1, {{kEnd, -0.1F}, {1, -2.4F}})}, .next = {}};
  EXPECT_EQ(JudgeGreedy(early, early, Goes(), 0.1).verdict, Verdict::kReal);
  ending = {.by_end_token = false, .end_tokens = kEnds, .min_tokens = 1};
  EXPECT_EQ(JudgeGreedy(early, early, ending, 0.1).verdict, Verdict::kEqual);
}

float Log(double probability) {
  return static_cast<float>(std::log(probability));
}

TEST(JudgeDrawn, TokensThatAreCutOffAreNotDrawn) {
  const Scores scores{.positions = {Position(3, {{1, Log(0.6)}, {2, Log(0.3)}, {3, Log(0.1)}})},
                      .next = {}};
  EXPECT_EQ(JudgeDrawn(scores, {}, 0.1).verdict, Verdict::kEqual);
  EXPECT_EQ(JudgeDrawn(scores, {.top_k = 2}, 0.1).verdict, Verdict::kSampling);
  EXPECT_EQ(JudgeDrawn(scores, {.top_p = 0.5}, 0.1).verdict, Verdict::kSampling);
  EXPECT_EQ(JudgeDrawn(scores, {.min_p = 0.2}, 0.1).verdict, Verdict::kSampling);
  EXPECT_EQ(JudgeDrawn(scores, {.min_p = 0.2}, 2.0).verdict, Verdict::kTie);
}

TEST(JudgeDrawn, TheBestTokenMayAlwaysBeDrawn) {
  const std::vector<std::pair<int32_t, float>> top = {{1, Log(0.6)}, {2, Log(0.4)}};
  const Scores best{.positions = {Position(1, top)}, .next = {}};
  const Scores other{.positions = {Position(2, top)}, .next = {}};
  for (const Choosing& choosing : {Choosing{.min_p = 1.5}, Choosing{.top_p = -1}}) {
    EXPECT_EQ(JudgeDrawn(best, choosing, 0.1).verdict, Verdict::kEqual);
    EXPECT_EQ(JudgeDrawn(other, choosing, 0.1).verdict, Verdict::kSampling);
  }
}

TEST(JudgeDrawn, AnotherTemperatureShows) {
  // The most likely of ten tokens is chosen every time, although each of them should be drawn
  // sometimes.
  std::vector<std::pair<int32_t, float>> top;
  for (int32_t token = 0; token < 10; ++token)
    top.emplace_back(token, Log(token == 0 ? 0.19 : 0.09));
  Scores scores;
  for (int i = 0; i < 60; ++i) scores.positions.push_back(Position(0, top));
  const Judgement judged = JudgeDrawn(scores, {}, 0.1);
  EXPECT_EQ(judged.verdict, Verdict::kSampling);
  EXPECT_LT(judged.surprise, -5);
  DrawnSums sums;
  sums.Add(scores, {});
  EXPECT_EQ(sums.tokens, 60);
  EXPECT_NEAR(sums.Deviation(), judged.surprise, 1e-9);
}

TEST(JudgeDrawn, PositionsOfWhichTooLittleIsKnownDoNotCount) {
  const Scores scores{.positions = {Position(5, {{1, Log(0.3)}, {2, Log(0.2)}})}, .next = {}};
  EXPECT_EQ(JudgeDrawn(scores, {}, 0.1).verdict, Verdict::kEqual);
  // top_k leaves only two tokens.
  EXPECT_EQ(JudgeDrawn(scores, {.top_k = 2}, 0.1).verdict, Verdict::kSampling);
}

TEST(LargestDifference, OnlyComparesWhatBothKnow) {
  const TokenLogprobs reference = Position(1, {{1, -0.5F}, {2, -1.0F}});
  EXPECT_FALSE(LargestDifference({{7, -0.1}}, reference));
  EXPECT_FALSE(LargestDifference({{3, -9}}, Position(1, {{1, -0.5F}, {3, -9.5F}})));
  EXPECT_NEAR(*LargestDifference({{3, -1}}, Position(1, {{1, -0.5F}, {3, -9.5F}})), 8.5, 1e-6);
  EXPECT_NEAR(*LargestDifference({{7, -0.1}, {2, -1.25}, {1, -0.5}}, reference), 0.25, 1e-6);
}

TEST(ReadAnswer, WholeAndStreamedAreTheSame) {
  const auto whole = ReadAnswer(
      R"({"choices":[{"index":0,"message":{"content":"ab"},"finish_reason":"stop","token_ids":[5,6],)"
      R"("logprobs":{"content":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1}]}}],)"
      R"("prompt_token_ids":[1,2],"usage":{"prompt_tokens":2,"completion_tokens":2}})",
      false);
  const auto stream = ReadAnswer(
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],"
      "\"prompt_token_ids\":[1,2]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"token_ids\":[5],"
      "\"logprobs\":{\"content\":[{\"logprob\":-0.5}]}}]}\r\n\r\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"token_ids\":[6],"
      "\"logprobs\":{\"content\":[{\"logprob\":-1}]},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2}}\n\n"
      "data: [DONE]\n\n",
      true);
  for (const auto* answer : {&whole, &stream}) {
    ASSERT_TRUE(*answer) << answer->error().message;
    ASSERT_EQ((*answer)->choices.size(), 1);
    const AnswerChoice& choice = (*answer)->choices[0];
    EXPECT_EQ(choice.text, "ab");
    EXPECT_EQ(choice.tokens, (std::vector<int32_t>{5, 6}));
    EXPECT_EQ(choice.prompt, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(choice.logprobs, (std::vector<double>{-0.5, -1}));
    EXPECT_EQ(choice.finish_reason, "stop");
    EXPECT_EQ((*answer)->prompt_tokens, 2);
  }
}

TEST(ReadAnswer, RefusesWhatIsIncomplete) {
  EXPECT_FALSE(ReadAnswer("{}", false));
  EXPECT_FALSE(ReadAnswer("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", true));
  EXPECT_FALSE(ReadAnswer("data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n", true));
  EXPECT_FALSE(ReadAnswer("data: {\n\ndata: [DONE]\n\n", true));
}

TEST(ReadAsked, KnowsWhatElseDecidesTheTokens) {
  const auto also = [](const char* body) {
    const auto asked = ReadAsked("/v1/completions", body, {});
    return asked ? asked->also + asked->not_compared : asked.error().message;
  };
  EXPECT_EQ(also(R"({"prompt":"a"})"), "");
  EXPECT_EQ(also(R"({"prompt":"a","frequency_penalty":0})"), "");
  EXPECT_EQ(also(R"({"prompt":"a","frequency_penalty":0.5})"), "frequency_penalty");
  EXPECT_EQ(also(R"({"prompt":"a","logit_bias":{}})"), "");
  EXPECT_EQ(also(R"({"prompt":"a","logit_bias":{"1":2}})"), "logit_bias");
  EXPECT_EQ(also(R"({"prompt":"a","response_format":{"type":"text"}})"), "");
  EXPECT_EQ(also(R"({"prompt":"a","response_format":{"type":"json_object"}})"), "response_format");
  EXPECT_EQ(also(R"({"prompt":"a","echo":true})"), "echo");
  EXPECT_EQ(also(R"({"n":2})"), "the request has no prompt");
  for (const char* field : {"n", "top_k", "min_tokens", "top_p", "min_p", "temperature"}) {
    for (const char* number : {"1e300", "-1e300", "-2"}) {
      EXPECT_EQ(also(fmt::format(R"({{"prompt":"a","{}":{}}})", field, number).c_str()),
                fmt::format("{} out of its range", field))
          << number;
    }
  }
  EXPECT_EQ(also(R"({"prompt":"a","min_p":1.5})"), "min_p out of its range");
  EXPECT_EQ(also(R"({"prompt":"a","n":0})"), "n out of its range");
  EXPECT_EQ(also(R"({"prompt":"a","top_k":-1,"top_p":1,"min_p":1,"min_tokens":0})"), "");
  const auto greedy =
      ReadAsked("/v1/completions", R"({"prompt":["a","b"],"n":2,"temperature":0})", {});
  ASSERT_TRUE(greedy);
  EXPECT_TRUE(greedy->choosing.is_greedy());
  EXPECT_EQ(greedy->prompts.size(), 2);
  EXPECT_EQ(greedy->num_choices, 2);
  SamplingDefaults defaults_of_model;
  defaults_of_model.temperature = 0.5;
  defaults_of_model.repetition_penalty = 1.2;
  const auto defaults = ReadAsked("/v1/completions", R"({"prompt":[1,2]})", defaults_of_model);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->choosing.temperature, 0.5);
  EXPECT_EQ(defaults->also, "repetition_penalty");
  EXPECT_EQ(defaults->prompts.size(), 1);
}

Exchange Asking(std::string request) {
  Exchange exchange;
  exchange.request = std::move(request);
  return exchange;
}

TEST(ExchangeQueue, DropsWhatDoesNotFit) {
  ExchangeQueue queue(2, 10);
  EXPECT_TRUE(queue.Offer(Asking("12345")));
  EXPECT_FALSE(queue.Offer(Asking("123456")));
  EXPECT_TRUE(queue.Offer(Asking("1")));
  EXPECT_FALSE(queue.Offer(Asking("")));
  EXPECT_EQ(queue.Take()->request, "12345");
  EXPECT_TRUE(queue.Offer(Asking("123456789")));
  EXPECT_EQ(queue.Close(), 2);
  EXPECT_FALSE(queue.Offer({}));
  EXPECT_TRUE(queue.Take());
  EXPECT_EQ(queue.Clear(), 1);
  EXPECT_FALSE(queue.Take());
}

Finding Found(Verdict verdict, std::string id, double gap = 0, std::string text = "") {
  Finding finding;
  finding.verdict = verdict;
  finding.id = std::move(id);
  finding.gap = gap;
  finding.detail = finding.prompt = finding.text = std::move(text);
  return finding;
}

TEST(Findings, KeepTheTenWorst) {
  Findings findings(
      {.upstream = "u", .model = "m", .ours = "auto", .reference = "float32", .epsilon = 0.1},
      /*is_private=*/false);
  for (int i = 0; i < 20; ++i) {
    findings.Add(Found(Verdict::kTie, "tie", 0.001 * i, "<b>"));
    findings.Add(Found(Verdict::kEqual, "equal"));
  }
  findings.Add(Found(Verdict::kReal, "real", 1));
  findings.Add(Found(Verdict::kTemplate, "template"));
  const json::Value report = findings.Json();
  const auto& worst = report.Find("worst")->as_array();
  ASSERT_EQ(worst.size(), 10);
  EXPECT_EQ(worst[0].Find("id")->as_string(), "real");
  EXPECT_EQ(worst[1].Find("id")->as_string(), "template");
  EXPECT_NEAR(worst[2].Find("gap_nats")->as_double(), 0.019, 1e-9);
  EXPECT_EQ(report.Find("verdicts")->Find("tie")->as_integer(), 20);
  EXPECT_EQ(report.Find("judged")->as_integer(), 42);
  const std::string page = findings.Page();
  EXPECT_NE(page.find("&lt;b&gt;"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(Findings, PrivateReportsQuoteNothing) {
  Findings findings({}, /*is_private=*/true);
  findings.Add(Found(Verdict::kReal, "1", 1, "secret"));
  EXPECT_EQ(json::Write(findings.Json()).find("secret"), std::string::npos);
  EXPECT_EQ(findings.Page().find("secret"), std::string::npos);
}

}  // namespace
}  // namespace sluice::shadow
