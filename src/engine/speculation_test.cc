// Answers with proposed tokens are those without, from a model that shows every error of the cache.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;

SpeculationConfig Ngram(int num_tokens) {
  SpeculationConfig config;
  config.method = SpeculationConfig::Method::kNgram;
  config.num_tokens = num_tokens;
  config.lookup_min = 2;
  config.lookup_max = 4;
  return config;
}

constexpr size_t kPeriod = 5;

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;
  bool operator==(const Answer&) const = default;
};

// What is asked at once, and the engine that answered.
std::vector<Answer> AnswersOf(FakeEngine& engine, const std::vector<SamplingParams>& kinds) {
  engine.model->period = kPeriod;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const SamplingParams& params : kinds) {
    sinks.push_back(std::make_shared<CollectingSink>(2));
    const std::vector<int32_t> prompt = {9, 2, 3, 4, 5, 9, 2, 3, 4, 5, 9};
    EXPECT_TRUE(engine.Submit(prompt, params, sinks.back(), 2));
  }
  std::vector<Answer> answers;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error);
    for (const auto& sequence : sink->sequences) {
      Answer& answer = answers.emplace_back();
      answer.tokens = sequence.tokens;
      answer.finish = sequence.finish;
      answer.stop_token = sequence.stop_token;
      for (const TokenLogprobs& entry : sequence.logprobs) answer.logprobs.push_back(entry.logprob);
    }
  }
  EXPECT_TRUE(engine.WaitForIdle());
  return answers;
}

// Each with its seed, as a request of its own.
std::vector<SamplingParams> EveryKind() {
  std::vector<SamplingParams> kinds(12, GreedyFor(60));
  for (size_t i = 1; i < kinds.size(); ++i) {
    kinds[i].temperature = 0.7;
    kinds[i].seed = static_cast<int64_t>(i);
  }
  kinds[2].top_p = 0.8;
  kinds[3].top_k = 7;
  kinds[4].min_p = 0.2;
  kinds[5].logprobs = 3;
  kinds[6].presence_penalty = 1.5;
  kinds[7].stop_token_ids = {4};
  kinds[7].min_tokens = 7;
  kinds[8].bad_words = {{9, 2}};
  kinds[9].logit_bias = {{FakeModel::kEos, 25.0f}};
  kinds[10].prompt_logprobs = 1;
  kinds[11].max_tokens = 3;
  return kinds;
}

TEST(Speculation, AnswersOfEveryKindAreTheSame) {
  FakeEngine plain({});
  const std::vector<Answer> expected = AnswersOf(plain, EveryKind());
  EXPECT_EQ(plain.observer.drafts, 0);
  for (const int num_tokens : {1, 3, 15}) {
    for (const bool draws : {false, true}) {
      FakeEngine engine({.speculation = Ngram(num_tokens)});
      engine.model->draws = draws;
      // One after the other, so that there is room for proposals.
      std::vector<Answer> answers;
      for (const SamplingParams& kind : EveryKind()) {
        for (Answer& answer : AnswersOf(engine, {kind})) answers.push_back(std::move(answer));
      }
      EXPECT_EQ(answers, expected) << num_tokens << " " << draws;
      EXPECT_GT(engine.observer.accepted_tokens, 100);
      EXPECT_LT(engine.observer.accepted_tokens, engine.observer.draft_tokens) << "none was wrong";
      EXPECT_LT(engine.observer.steps, plain.observer.generated_tokens);
      EXPECT_EQ(engine.observer.generated_tokens, plain.observer.generated_tokens);
      EXPECT_EQ(engine.observer.prompt_tokens > 0, true);
    }
  }
}

TEST(Speculation, TakesFewerSteps) {
  FakeEngine plain({}), engine({.speculation = Ngram(4)});
  const auto expected = AnswersOf(plain, {GreedyFor(200)});
  EXPECT_EQ(AnswersOf(engine, {GreedyFor(200)}), expected);
  EXPECT_LT(2 * engine.observer.steps, plain.observer.steps);
  // A step's tokens of a sequence come together.
  EXPECT_LT(2 * engine.observer.inter_tokens, plain.observer.inter_tokens);
}

TEST(Speculation, ManySequencesLeaveNoRoom) {
  FakeEngine engine({.speculation = Ngram(4)});
  FakeEngine plain({});
  const std::vector<SamplingParams> many(16, GreedyFor(20));  // of two sequences each
  EXPECT_EQ(AnswersOf(engine, many), AnswersOf(plain, many));
}

// Blocks that only proposals want are left to those who wait.
TEST(Speculation, PreemptsNobody) {
  const FakeEngine::Options few = {.num_blocks = 48, .max_model_len = 96};
  FakeEngine::Options speculating = few;
  speculating.speculation = Ngram(8);
  FakeEngine plain(few), engine(speculating);
  const std::vector<SamplingParams> kinds(2, GreedyFor(30));
  EXPECT_EQ(AnswersOf(engine, kinds), AnswersOf(plain, kinds));
  EXPECT_EQ(engine.observer.preemptions, 0);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
}

// What was accepted is found by the next request as if it had been decoded.
TEST(Speculation, FillsThePrefixCache) {
  const auto hits = [](FakeEngine& engine) {
    engine.model->period = kPeriod;
    std::vector<int32_t> tokens = {9, 2, 3, 4, 5, 9, 2, 3, 4, 5, 9};
    const auto first = engine.Ask(tokens, GreedyFor(53));
    tokens.insert(tokens.end(), first->tokens().begin(), first->tokens().end());
    const auto second = engine.Ask(tokens, GreedyFor(4));
    return std::pair(second->prompt->cached_tokens, second->tokens());
  };
  FakeEngine plain({}), engine({.speculation = Ngram(8)});
  const auto expected = hits(plain);
  EXPECT_GE(expected.first, 56);
  EXPECT_EQ(hits(engine), expected);
  EXPECT_GT(engine.observer.accepted_tokens, 0);
}

TEST(Speculation, PastAnswersArePrivateWithASalt) {
  SpeculationConfig config = Ngram(8);
  config.method = SpeculationConfig::Method::kSuffix;
  config.cached_tokens = 1000;
  const auto drafts_of_second = [&](const std::string& salt) {
    FakeEngine engine({.speculation = config});
    int64_t before = 0;
    for (int i = 0; i < 2; ++i) {
      before = engine.observer.drafts;
      Request request;
      request.id = "test";
      request.prompt = {1, 2, 3, 4};
      request.sampling = GreedyFor(40);
      request.cache_salt = salt;
      const auto sink = std::make_shared<CollectingSink>();
      request.sink = sink;
      EXPECT_TRUE(engine.engine->Submit(std::move(request)));
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_EQ(sink->tokens(), FakeModel::Greedy({1, 2, 3, 4}, 40));
      EXPECT_TRUE(engine.WaitForIdle());
    }
    return engine.observer.drafts - before;
  };
  // This model never repeats itself in one answer.
  EXPECT_GT(drafts_of_second(""), 0);
  EXPECT_EQ(drafts_of_second("mine"), 0);
}

}  // namespace
}  // namespace sluice
