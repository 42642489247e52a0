// The model draws the same tokens as the sampler, for every sampling parameter and with logprobs.
#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "engine/device_choice_testing.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;
using testing::StripeConstraint;

struct DrawnQuestion {
  const char* name;
  SamplingParams params;
  std::shared_ptr<const Constraint> constraint = {};
};

// Each kind of sampling parameter separately, and several together. Requires a vocabulary of at
// least 64 tokens.
std::vector<DrawnQuestion> EveryKind() {
  std::vector<DrawnQuestion> all;
  const auto add = [&](const char* name, const auto& change) {
    DrawnQuestion& question = all.emplace_back();
    question.name = name;
    question.params.max_tokens = 12;
    question.params.seed = 5;
    question.params.ignore_eos = true;
    change(question);
  };
  add("greedy", [](DrawnQuestion& q) { q.params.temperature = 0; });
  add("temperature", [](DrawnQuestion& q) { q.params.temperature = 0.5; });
  add("top_p", [](DrawnQuestion& q) { q.params.top_p = 0.8; });
  add("top_k", [](DrawnQuestion& q) { q.params.top_k = 7; });
  add("min_p", [](DrawnQuestion& q) { q.params.min_p = 0.2; });
  add("logprobs", [](DrawnQuestion& q) { q.params.logprobs = 3; });
  add("presence", [](DrawnQuestion& q) { q.params.presence_penalty = 1.5; });
  add("repetition, frequency", [](DrawnQuestion& q) {
    q.params.temperature = 0;
    q.params.repetition_penalty = 1.4;
    q.params.frequency_penalty = 0.5;
  });
  add("bias", [](DrawnQuestion& q) { q.params.logit_bias = {{3, 5.0f}, {20, -100.0f}}; });
  add("allowed", [](DrawnQuestion& q) {
    q.params.allowed_token_ids = std::vector<int32_t>{40, 3, 9, 10, 11, 31, 32, 33};
    q.params.logprobs = 5;
  });
  add("bad words", [](DrawnQuestion& q) {
    q.params.temperature = 0.4;
    q.params.bad_words = {{7}, {8, 9}, {30, 31, 32}};
  });
  add("min_tokens", [](DrawnQuestion& q) {
    q.params.ignore_eos = false;
    q.params.min_tokens = 6;
    q.params.stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  });
  add("constraint", [](DrawnQuestion& q) { q.constraint = std::make_shared<StripeConstraint>(); });
  add("greedy constraint", [](DrawnQuestion& q) {
    q.params.temperature = 0;
    q.constraint = std::make_shared<StripeConstraint>();
  });
  for (const LogprobsMode mode : {LogprobsMode::kRawLogprobs, LogprobsMode::kProcessedLogprobs,
                                  LogprobsMode::kRawLogits, LogprobsMode::kProcessedLogits}) {
    add("all together", [mode](DrawnQuestion& q) {
      q.params.logprobs = 4;
      q.params.logprobs_mode = mode;
      q.params.top_k = 9;
      q.params.repetition_penalty = 1.2;
      q.params.logit_bias = {{3, 5.0f}, {21, -2.5f}};
      q.constraint = std::make_shared<StripeConstraint>();
    });
  }
  return all;
}

// Submits all questions at once.
std::vector<std::shared_ptr<CollectingSink>> Ask(Engine& engine,
                                                 std::vector<DrawnQuestion> questions) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (DrawnQuestion& question : questions) {
    Request request;
    request.prompt = {1, 2, 3, 4, 5};
    request.sampling = std::move(question.params);
    request.constraint = question.constraint;
    request.sink = sinks.emplace_back(std::make_shared<CollectingSink>());
    EXPECT_TRUE(engine.Submit(std::move(request)));
  }
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error) << sink->error->message;
  }
  return sinks;
}

// Compares only as many top logprobs as both answers have.
void ExpectSameAnswers(const CollectingSink& got, const CollectingSink& expected) {
  EXPECT_EQ(got.tokens(), expected.tokens());
  const std::vector<TokenLogprobs>& a = got.sequences[0].logprobs;
  const std::vector<TokenLogprobs>& b = expected.sequences[0].logprobs;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_NEAR(a[i].logprob, b[i].logprob, 1e-5);
    EXPECT_EQ(a[i].rank, b[i].rank);
    for (size_t k = 0; k < std::min(a[i].top.size(), b[i].top.size()); ++k) {
      EXPECT_EQ(a[i].top[k].first, b[i].top[k].first) << i << " " << k;
      if (std::isinf(b[i].top[k].second))
        EXPECT_EQ(a[i].top[k].second, b[i].top[k].second);
      else
        EXPECT_NEAR(a[i].top[k].second, b[i].top[k].second, 1e-5);
    }
  }
}

TEST(EngineDraws, ModelsThatDrawTokensGiveTheSameAnswers) {
  const std::vector<DrawnQuestion> questions = EveryKind();
  FakeEngine host({}), device({});
  device.model->draws = true;
  const auto expected = Ask(*host.engine, questions);
  const auto got = Ask(*device.engine, questions);
  int64_t num_tokens = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    SCOPED_TRACE(questions[i].name);
    ExpectSameAnswers(*got[i], *expected[i]);
    num_tokens += std::ssize(got[i]->tokens());
  }
  EXPECT_EQ(got[5]->sequences[0].logprobs.size(), 12u);
  EXPECT_EQ(got[5]->sequences[0].logprobs[0].top.size(), 3u);
  EXPECT_EQ(host.model->num_drawn, 0);
  EXPECT_EQ(device.model->num_drawn, num_tokens) << "not one by the host";
}

// The host draws rows for which more logprobs are requested than there is room for. It also draws
// rows with two biases of one token, whose sum would be rounded differently. The model still draws
// the other rows.
TEST(EngineDraws, WhatTheModelCannotTellIsLeftToTheHost) {
  std::vector<DrawnQuestion> questions(3);
  for (DrawnQuestion& question : questions) {
    question.params.max_tokens = 5;
    question.params.seed = 3;
    question.params.ignore_eos = true;
  }
  questions[0].params.logprobs = 9;
  questions[1].params.logit_bias = {{3, 1.1f}, {3, 2.3f}};
  FakeEngine host({}), device({});
  device.model->draws = true;
  const auto expected = Ask(*host.engine, questions);
  const auto got = Ask(*device.engine, questions);
  for (size_t i = 0; i < questions.size(); ++i) ExpectSameAnswers(*got[i], *expected[i]);
  EXPECT_EQ(device.model->num_drawn, 5);
}

TEST(EngineDraws, ADrawWithoutATokenFailsItsRequestAlone) {
  FakeEngine engine({});
  engine.model->draws = true;
  const auto bad = engine.Ask({5, FakeModel::kNanToken}, GreedyFor(4));
  ASSERT_TRUE(bad->error);
  EXPECT_NE(bad->error->message.find("NaN"), std::string::npos) << bad->error->message;
  SamplingParams nothing = GreedyFor(4);
  nothing.allowed_token_ids = std::vector<int32_t>{9};
  nothing.bad_words = {{9}};
  const auto empty = engine.Ask({5, 6}, nothing);
  ASSERT_TRUE(empty->error);
  EXPECT_EQ(empty->error->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(empty->error->message.find("no token is left"), std::string::npos);
  EXPECT_EQ(engine.Ask({5, 6}, GreedyFor(4))->tokens(), FakeModel::Greedy({5, 6}, 4));
}

// On an emulated device, with one step or several in flight. Rows for which more logprobs are
// requested than a draw returns go to the host's sampler, whose answers are the reference.
TEST(EngineDraws, AnEmulatedDeviceDrawsAsTheHostDoes) {
  for (const bool async : {false, true}) {
    EngineConfig config;
    config.model_folder = SourcePath("tests/data/checkpoints/qwen3-bf16");
    config.device = testing::TestedChoice();
    config.batch_invariant = true;
    config.async_scheduling = async;
    config.max_num_seqs = 32;
    config.max_model_len = 64;
    config.num_blocks_override = 128;
    auto engine = Engine::Create(config, {});
    ASSERT_TRUE(engine) << engine.error().message;
    std::vector<DrawnQuestion> by_device = EveryKind(), by_host = EveryKind();
    for (DrawnQuestion& question : by_device) {
      if (!question.params.logprobs) question.params.logprobs = 0;
    }
    for (DrawnQuestion& question : by_device) question.params.max_tokens = 4;
    for (DrawnQuestion& question : by_host) question.params.max_tokens = 4;
    for (DrawnQuestion& question : by_host) question.params.logprobs = kernels::kMostTopLogits + 1;
    const auto expected = Ask(**engine, by_host);
    const auto got = Ask(**engine, by_device);
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(by_host[i].name);
      ExpectSameAnswers(*got[i], *expected[i]);
    }
  }
}

}  // namespace
}  // namespace sluice
