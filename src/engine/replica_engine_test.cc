#include "engine/replica_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeModel;
using testing::GreedyFor;
using ::testing::HasSubstr;

// A ReplicaEngine over engines with fake models.
struct Replicas {
  explicit Replicas(int count, const testing::FakeEngine::Options& options = {},
                    uint64_t seed = 1) {
    std::vector<std::unique_ptr<Engine>> engines;
    for (int i = 0; i < count; ++i) {
      fakes.push_back(std::make_unique<testing::FakeEngine>(options));
      models.push_back(fakes.back()->model);
      engines.push_back(std::move(fakes.back()->engine));
      inner.push_back(engines.back().get());
    }
    EngineInfo info = engines.front()->info();
    info.num_engines = count;
    info.num_blocks = options.num_blocks;
    info.block_size = options.block_size;
    engine =
        std::make_unique<ReplicaEngine>(std::move(engines), info, seed, options.prefix_caching);
  }

  std::shared_ptr<CollectingSink> Start(std::vector<int32_t> prompt, SamplingParams params,
                                        std::optional<int> where = {}) {
    auto sink = std::make_shared<CollectingSink>();
    Request request;
    request.prompt = std::move(prompt);
    request.sampling = std::move(params);
    request.engine = where;
    request.sink = sink;
    const auto handle = engine->Submit(std::move(request));
    EXPECT_TRUE(handle) << handle.error().message;
    if (handle) handles.push_back(*handle);
    return sink;
  }
  std::vector<int32_t> Ask(std::vector<int32_t> prompt, SamplingParams params) {
    const auto sink = Start(std::move(prompt), std::move(params));
    EXPECT_TRUE(sink->WaitForEnd());
    EXPECT_FALSE(sink->error) << sink->error->message;
    return sink->tokens();
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    return fakes.front()->Eventually(condition);
  }

  std::vector<std::unique_ptr<testing::FakeEngine>> fakes;  // the FakeEngines own the observers
  std::vector<FakeModel*> models;
  std::vector<Engine*> inner;
  std::vector<RequestHandle> handles;
  std::unique_ptr<ReplicaEngine> engine;
};

TEST(ReplicaEngine, AnswersDoNotDependOnTheNumberOfEngines) {
  std::vector<std::vector<int32_t>> expected;
  for (const int count : {1, 2, 3}) {
    Replicas replicas(count);
    SamplingParams drawn;  // without a seed
    drawn.max_tokens = 20;
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (int32_t i = 0; i < 12; ++i) {
      sinks.push_back(replicas.Start({i, i + 1, 5}, drawn));
    }
    std::vector<std::vector<int32_t>> answers;
    for (const auto& sink : sinks) {
      ASSERT_TRUE(sink->WaitForEnd());
      answers.push_back(sink->tokens());
    }
    if (expected.empty()) expected = answers;
    EXPECT_EQ(answers, expected) << count << " engines";
    for (FakeModel* model : replicas.models) EXPECT_GT(model->steps, 0);
    EXPECT_TRUE(replicas.Eventually([&] { return replicas.engine->num_unfinished() == 0; }));
    for (int i = 0; i < count; ++i) EXPECT_EQ(replicas.engine->unfinished_tokens(i), 0);
  }
  EXPECT_NE(expected[0], expected[1]);
}

TEST(ReplicaEngine, APrefixIsFoundWhereItIs) {
  Replicas replicas(2);
  std::vector<int32_t> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  for (int turn = 0; turn < 6; ++turn) {
    const std::vector<int32_t> answer = replicas.Ask(prompt, GreedyFor(8));
    EXPECT_EQ(answer, FakeModel::Greedy(prompt, 8));
    prompt.insert(prompt.end(), answer.begin(), answer.end());
  }
  EXPECT_EQ(std::min(replicas.fakes[0]->observer.steps, replicas.fakes[1]->observer.steps), 0);
  EXPECT_GT(replicas.fakes[0]->observer.prefix_hits + replicas.fakes[1]->observer.prefix_hits,
            5 * 40);
  EXPECT_TRUE(replicas.engine->ResetPrefixCache());
  replicas.Ask(prompt, GreedyFor(1));
  EXPECT_GT(std::min(replicas.fakes[0]->observer.steps, replicas.fakes[1]->observer.steps), 0)
      << "it was the other one's turn";
}

TEST(ReplicaEngine, AbortAndStopReachTheRequest) {
  Replicas replicas(3);
  for (FakeModel* model : replicas.models) model->allowed_steps = 4;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int32_t i = 0; i < 3; ++i) sinks.push_back(replicas.Start({i}, GreedyFor(100)));
  for (const auto& sink : sinks) EXPECT_TRUE(sink->WaitForTokens(4));
  EXPECT_EQ(replicas.engine->num_unfinished(), 3);
  EXPECT_EQ(replicas.engine->unfinished_tokens(1), 96);
  replicas.engine->Abort(replicas.handles[0]);
  replicas.engine->StopSequence(replicas.handles[1], 0);
  for (FakeModel* model : replicas.models)
    model->allowed_steps = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(sinks[1]->WaitForEnd());
  EXPECT_TRUE(sinks[2]->WaitForEnd());
  EXPECT_EQ(sinks[1]->sequences[0].finish, FinishReason::kStop);
  EXPECT_EQ(sinks[2]->tokens().size(), 100u);
  EXPECT_TRUE(replicas.Eventually([&] { return replicas.engine->num_unfinished() == 0; }));
  EXPECT_FALSE(sinks[0]->sequences[0].finish);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(replicas.engine->unfinished_tokens(i), 0);
}

TEST(ReplicaEngine, ALostEngineIsPassedOver) {
  Replicas replicas(2);
  for (FakeModel* model : replicas.models) model->allowed_steps = 2;
  const auto lost = replicas.Start({1, 2}, GreedyFor(20), 0);
  const auto kept = replicas.Start({3, 4}, GreedyFor(20), 1);
  EXPECT_TRUE(lost->WaitForTokens(2));
  replicas.models[0]->lost = true;
  for (FakeModel* model : replicas.models)
    model->allowed_steps = std::numeric_limits<int64_t>::max();
  ASSERT_TRUE(lost->WaitForEnd());
  ASSERT_TRUE(lost->error);
  EXPECT_THAT(lost->error->message, HasSubstr("rank 1 (process 7 on node3) has ended"));
  ASSERT_TRUE(kept->WaitForEnd());
  EXPECT_EQ(kept->tokens(), FakeModel::Greedy({3, 4}, 20));

  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(replicas.Ask({i, 9}, GreedyFor(5)), FakeModel::Greedy({i, 9}, 5));
  EXPECT_TRUE(replicas.engine->healthy());
  EXPECT_EQ(replicas.engine->failure(), "");
  const std::vector<EngineState> states = replicas.engine->states();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_FALSE(states[0].is_healthy);
  EXPECT_THAT(states[0].reason, HasSubstr("has ended"));
  EXPECT_TRUE(states[1].is_healthy);

  replicas.models[1]->lost = true;
  EXPECT_FALSE(replicas.engine->healthy());
  EXPECT_THAT(replicas.engine->failure(), HasSubstr("engine 0: rank 1"));
  EXPECT_THAT(replicas.engine->failure(), HasSubstr("engine 1: rank 1"));
  Request request;
  request.prompt = {1};
  request.sink = std::make_shared<CollectingSink>();
  const auto refused = replicas.engine->Submit(std::move(request));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(replicas.engine->num_unfinished(), 0);
}

TEST(ReplicaEngine, TheRequestsOfOneThatHangsFail) {
  testing::FakeEngine::Options options;
  options.loop.watchdog_seconds = 0.2;
  Replicas replicas(2, options);
  replicas.models[0]->hang = true;
  const auto stuck = replicas.Start({1, 2}, GreedyFor(3), 0);
  ASSERT_TRUE(stuck->WaitForEnd());
  ASSERT_TRUE(stuck->error);
  EXPECT_EQ(stuck->error->code, ErrorCode::kUnavailable);
  EXPECT_THAT(stuck->error->message, HasSubstr("engine 0 has failed: a step does not end"));
  EXPECT_EQ(replicas.engine->num_unfinished(), 0);
  EXPECT_EQ(replicas.engine->unfinished_tokens(0), 0);
  for (int32_t i = 0; i < 4; ++i) replicas.Ask({i}, GreedyFor(2));
  EXPECT_EQ(replicas.models[0]->steps, 0);
  EXPECT_FALSE(replicas.engine->ResetPrefixCache()) << "it does not wait for the one that hangs";
  // The engine was only slow: its late results are dropped, and it accepts requests again.
  replicas.models[0]->hang = false;
  EXPECT_TRUE(replicas.Eventually([&] { return replicas.inner[0]->num_unfinished() == 0; }));
  EXPECT_EQ(stuck->num_updates, 0);
  EXPECT_TRUE(replicas.engine->states()[0].is_healthy);
}

TEST(ReplicaEngine, OneWhoseStepsFailIsSparedWhileThereAreOthers) {
  Replicas replicas(2);
  const auto poison = [&](int engine) {
    for (int i = 0; i < 3; ++i) {
      const auto sink = replicas.Start({FakeModel::kPoison}, GreedyFor(2), engine);
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_TRUE(sink->error);
    }
  };
  poison(0);
  EXPECT_FALSE(replicas.engine->states()[0].is_healthy);
  EXPECT_TRUE(replicas.engine->healthy());
  const int64_t steps = replicas.models[0]->steps;
  for (int32_t i = 0; i < 4; ++i) replicas.Ask({i}, GreedyFor(2));
  EXPECT_EQ(replicas.models[0]->steps, steps);
  poison(1);
  EXPECT_FALSE(replicas.engine->healthy());
  for (int32_t i = 0; i < 4; ++i) replicas.Ask({i, 8}, GreedyFor(2));
  EXPECT_TRUE(replicas.engine->healthy()) << "a step that succeeds heals";
}

TEST(ReplicaEngine, AllShutDown) {
  Replicas replicas(2);
  for (FakeModel* model : replicas.models) model->allowed_steps = 1;
  const auto first = replicas.Start({1}, GreedyFor(6)), second = replicas.Start({2}, GreedyFor(6));
  EXPECT_TRUE(first->WaitForTokens(1));
  EXPECT_TRUE(second->WaitForTokens(1));
  replicas.engine->BeginShutdown();
  Request request;
  request.prompt = {1};
  request.sink = std::make_shared<CollectingSink>();
  EXPECT_FALSE(replicas.engine->Submit(std::move(request)));
  for (FakeModel* model : replicas.models)
    model->allowed_steps = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(first->WaitForEnd());
  EXPECT_TRUE(second->WaitForEnd());
  EXPECT_EQ(second->tokens().size(), 6u);
  EXPECT_TRUE(replicas.Eventually([&] { return replicas.engine->num_unfinished() == 0; }));
}

TEST(ReplicaEngine, WhatIsWrongIsRefused) {
  Replicas replicas(2);
  Request request;
  request.prompt = {FakeModel::kVocab};
  request.sink = std::make_shared<CollectingSink>();
  const auto refused = replicas.engine->Submit(std::move(request));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(replicas.engine->num_unfinished(), 0);
}

}  // namespace
}  // namespace sluice
