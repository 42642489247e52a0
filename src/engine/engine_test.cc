// The engine's contract with callers, tested with a fake model.
#include "engine/engine.h"

#include <algorithm>
#include <random>

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "engine/active_request.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;

std::vector<int32_t> Prompt(unsigned seed, size_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(length);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % FakeModel::kPoison);
  return tokens;
}

TEST(Engine, AnswersGreedily) {
  FakeEngine fake({});
  const auto sink = fake.Ask(Prompt(1, 100), GreedyFor(20));
  EXPECT_EQ(sink->tokens(), FakeModel::Greedy(Prompt(1, 100), 20));
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kLength);
  ASSERT_TRUE(sink->prompt);
  EXPECT_EQ(sink->prompt->cached_tokens, 0);
  EXPECT_LE(fake.model->largest_step, 64);
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_EQ(fake.observer.prompt_tokens, 100);
  EXPECT_EQ(fake.observer.generated_tokens, 20);
  EXPECT_EQ(fake.observer.first_tokens, 1);
  EXPECT_EQ(fake.observer.inter_tokens, 19);
  EXPECT_EQ(fake.observer.finished, 1);
}

TEST(Engine, PrefixHitGivesTheSameAnswer) {
  FakeEngine fake({});
  fake.Ask(Prompt(1, 100), GreedyFor(5));
  const auto again = fake.Ask(Prompt(1, 100), GreedyFor(20));
  EXPECT_EQ(again->prompt->cached_tokens, 96);
  EXPECT_EQ(again->tokens(), FakeModel::Greedy(Prompt(1, 100), 20));
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(fake.engine->ResetPrefixCache());
  EXPECT_EQ(fake.Ask(Prompt(1, 100), GreedyFor(1))->prompt->cached_tokens, 0);
}

// The contract's rules C1, C4 and C7 and bit-identical answers: many requests on few blocks, with
// preemptions, shared prefixes and clients that disconnect.
TEST(Engine, CrowdGetsTheAnswersOfOneAlone) {
  FakeEngine fake({.num_blocks = 140,
                   .max_num_seqs = 16,
                   .max_num_batched_tokens = 24,
                   .num_threads = 2,
                   .loop = {}});
  struct Asked {
    std::vector<int32_t> prompt;
    int64_t count;
    bool leaves;
    std::shared_ptr<CollectingSink> sink;
    RequestHandle handle;
  };
  fake.model->hang = true;  // until all requests have been submitted
  std::mt19937 random(3);
  std::vector<Asked> all;
  for (unsigned i = 0; i < 120; ++i) {
    Asked asked{Prompt(i % 10, 1 + random() % 60), static_cast<int64_t>(1 + random() % 80),
                i % 3 == 0, std::make_shared<CollectingSink>(), 0};
    asked.handle = *fake.Submit(asked.prompt, GreedyFor(asked.count), asked.sink);
    all.push_back(asked);
  }
  for (Asked& asked : all) {
    if (asked.leaves) fake.engine->Abort(asked.handle);
  }
  fake.model->hang = false;
  for (Asked& asked : all) {
    if (asked.leaves) continue;
    ASSERT_TRUE(asked.sink->WaitForEnd());
    EXPECT_EQ(asked.sink->tokens(), FakeModel::Greedy(asked.prompt, asked.count));
  }
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(fake.engine->healthy());
  EXPECT_GT(fake.observer.preemptions, 0) << "the test should run short of blocks";
  EXPECT_EQ(fake.observer.finished, 120);
}

TEST(Engine, C7AnAbortedRequestIsGoneAfterOneStep) {
  FakeEngine fake({});
  fake.model->allowed_steps = 5;
  const auto sink = std::make_shared<CollectingSink>();
  const RequestHandle handle = *fake.Submit(Prompt(1, 10), GreedyFor(400), sink);
  ASSERT_TRUE(sink->WaitForTokens(3));
  fake.engine->Abort(handle);
  fake.model->allowed_steps = 1000;
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_LE(fake.model->steps, 6) << "the five that were let through, and the one under way";
  const std::lock_guard lock(sink->mutex);
  EXPECT_FALSE(sink->sequences[0].finish) << "the sink hears nothing of it";
  EXPECT_FALSE(sink->error);
}

// A client may read /metrics, or a benchmark may read its counts, immediately after an answer.
TEST(Engine, TokensAreCountedBeforeTheSinkHearsOfThem) {
  class Sink final : public RequestSink {
   public:
    explicit Sink(const testing::CountingObserver& observer) : observer_(observer) {}
    void OnPrompt(PromptResult) override { EXPECT_EQ(observer_.prompt_tokens, 10); }
    void OnUpdate(SequenceUpdate update) override {
      EXPECT_EQ(observer_.generated_tokens, ++num_tokens_);
      if (!update.finish) return;
      EXPECT_EQ(observer_.running, 0);
      ended = true;
    }
    void OnError(Error error) override { ADD_FAILURE() << error.message; }
    std::atomic<bool> ended{false};

   private:
    const testing::CountingObserver& observer_;
    int64_t num_tokens_ = 0;
  };
  FakeEngine fake({});
  Request request;
  request.prompt = Prompt(1, 10);
  request.sampling = GreedyFor(20);
  const auto sink = std::make_shared<Sink>(fake.observer);
  request.sink = sink;
  ASSERT_TRUE(fake.engine->Submit(std::move(request)));
  EXPECT_TRUE(fake.Eventually([&] { return sink->ended.load(); }));
}

// A sink gets the statistics of its own request, even after the client has left. An observer gets
// the statistics of all requests.
TEST(Engine, ASinkIsToldTheStatisticsOfItsRequestOnce) {
  class Sink final : public RequestSink {
   public:
    void OnPrompt(PromptResult) override {}
    void OnUpdate(SequenceUpdate) override { ++num_updates; }
    void OnError(Error error) override { ADD_FAILURE() << error.message; }
    bool OnStats(const RequestStats& told, EngineObserver* /*observer*/) override {
      const std::lock_guard lock(mutex);
      stats.push_back(told);
      return false;
    }
    std::vector<RequestStats> Told() {
      const std::lock_guard lock(mutex);
      return stats;
    }
    std::atomic<int> num_updates{0};
    std::mutex mutex;
    std::vector<RequestStats> stats;
  };
  FakeEngine fake({});
  const auto submit = [&](int64_t num_tokens) {
    Request request;
    request.prompt = Prompt(1, 10);
    request.sampling = GreedyFor(num_tokens);
    const auto sink = std::make_shared<Sink>();
    request.sink = sink;
    return std::pair(sink, *fake.engine->Submit(std::move(request)));
  };
  const auto finished = submit(20).first;
  EXPECT_TRUE(fake.Eventually([&] { return !finished->Told().empty(); }));
  fake.model->allowed_steps = fake.model->steps + 5;
  const auto [left, handle] = submit(50);
  EXPECT_TRUE(fake.Eventually([&, sink = left] { return sink->num_updates > 0; }));
  fake.engine->Abort(handle);
  fake.model->allowed_steps = 1000;
  EXPECT_TRUE(fake.WaitForIdle());
  ASSERT_EQ(finished->Told().size(), 1u);
  const RequestStats stats = finished->Told()[0];
  EXPECT_EQ(stats.reason, FinishReason::kLength);
  EXPECT_EQ(stats.prompt_tokens, 10);
  EXPECT_EQ(stats.generated_tokens, 20);
  EXPECT_EQ(stats.max_tokens, 20);
  ASSERT_EQ(left->Told().size(), 1u);
  EXPECT_EQ(left->Told()[0].reason, FinishReason::kAbort);
}

TEST(Engine, EndTokensStopTokensAndMinTokens) {
  FakeEngine fake({});
  const std::vector<int32_t> prompt = Prompt(5, 9);
  const std::vector<int32_t> want = FakeModel::Greedy(prompt, 10);

  SamplingParams params = GreedyFor(10);
  params.stop_token_ids = {want[3]};
  auto sink = fake.Ask(prompt, params);
  const auto first = std::find(want.begin(), want.end(), want[3]) + 1;
  EXPECT_EQ(sink->tokens(), std::vector<int32_t>(want.begin(), first));
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kStop);
  EXPECT_EQ(sink->sequences[0].stop_token, want[3]);

  params = GreedyFor(10);
  params.logit_bias = {{FakeModel::kEos, 100.0f}};
  sink = fake.Ask(prompt, params);
  EXPECT_EQ(sink->tokens(), std::vector<int32_t>{FakeModel::kEos});
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kStop);
  EXPECT_FALSE(sink->sequences[0].stop_token);

  params.min_tokens = 4;
  sink = fake.Ask(prompt, params);
  EXPECT_EQ(sink->tokens().size(), 5u);
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + 4, sink->tokens().begin()));
  EXPECT_EQ(sink->tokens().back(), FakeModel::kEos);

  params.min_tokens = 0;
  params.ignore_eos = true;
  sink = fake.Ask(prompt, params);
  EXPECT_EQ(sink->tokens(), std::vector<int32_t>(10, FakeModel::kEos));
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kLength);
}

// The tokenizer's end-of-sequence token may differ from that of config.json.
TEST(Engine, EndTokensOfARequestEndIt) {
  FakeEngine fake({});
  const std::vector<int32_t> prompt = Prompt(1, 10);
  const std::vector<int32_t> answer = FakeModel::Greedy(prompt, 10);
  const auto ask = [&](const SamplingParams& params) {
    Request request;
    request.prompt = prompt;
    request.sampling = params;
    request.end_tokens = {answer[3]};
    auto sink = std::make_shared<CollectingSink>();
    request.sink = sink;
    EXPECT_TRUE(fake.engine->Submit(std::move(request)));
    EXPECT_TRUE(sink->WaitForEnd());
    return sink;
  };
  const auto first = std::find(answer.begin(), answer.end(), answer[3]) + 1;
  const auto ended = ask(GreedyFor(10));
  EXPECT_EQ(ended->tokens(), std::vector<int32_t>(answer.begin(), first));
  EXPECT_EQ(ended->sequences[0].finish, FinishReason::kStop);
  EXPECT_FALSE(ended->sequences[0].stop_token.has_value());
  SamplingParams params = GreedyFor(10);
  params.ignore_eos = true;
  EXPECT_EQ(ask(params)->tokens(), answer);
  params = GreedyFor(10);
  params.min_tokens = 10;  // the end token cannot be drawn earlier
  const auto masked = ask(params);
  EXPECT_EQ(masked->tokens().size(), 10u);
  EXPECT_EQ(std::count(masked->tokens().begin(), masked->tokens().end(), answer[3]), 0);
}

// The list of stop tokens may be as long as the vocabulary, and a request may have thousands of
// sequences.
TEST(Engine, SequencesShareTheListOfTheirEndTokens) {
  Request request;
  request.prompt = {1};
  request.num_sequences = 2;
  request.sampling.stop_token_ids = {7, 8};
  const auto active =
      MakeActiveRequest(1, std::move(request), {64, 100}, std::vector<int32_t>{63}, 0, false);
  const SharedList<int32_t>& first = active->sequences[0]->sampling.end_tokens;
  EXPECT_EQ(std::vector<int32_t>(first.begin(), first.end()), (std::vector<int32_t>{63, 7, 8}));
  EXPECT_EQ(first.data(), active->sequences[1]->sampling.end_tokens.data());
}

TEST(Engine, TheContextEndsASequence) {
  FakeEngine fake({.max_model_len = 32, .loop = {}});
  const auto sink = fake.Ask(Prompt(1, 30), GreedyFor(100));
  EXPECT_EQ(sink->tokens().size(), 2u);
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kLength);
}

TEST(Engine, StopSequenceEndsOneAndItsSiblingsGoOn) {
  FakeEngine fake({});
  fake.model->allowed_steps = 5;
  SamplingParams params = GreedyFor(60);
  const auto sink = std::make_shared<CollectingSink>(2);
  const RequestHandle handle = *fake.Submit(Prompt(1, 10), params, sink, 2);
  ASSERT_TRUE(sink->WaitForTokens(2, 1));
  fake.engine->StopSequence(handle, 1);
  fake.model->allowed_steps = 1000;
  ASSERT_TRUE(sink->WaitForEnd());
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kLength);
  EXPECT_EQ(sink->sequences[0].tokens.size(), 60u);
  EXPECT_EQ(sink->sequences[1].finish, FinishReason::kStop);
  EXPECT_LE(sink->sequences[1].tokens.size(), 6u);
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_EQ(fake.observer.finished, 1);
}

TEST(Engine, SeededChoicesRepeatWhateverElseRuns) {
  SamplingParams params;
  params.seed = 17;
  params.max_tokens = 30;
  std::vector<std::vector<int32_t>> alone;
  {
    FakeEngine fake({});
    for (int64_t j = 0; j < 3; ++j) {
      SamplingParams own = params;
      own.seed = 17 + j;
      alone.push_back(fake.Ask(Prompt(2, 40), own)->tokens());
    }
    EXPECT_NE(alone[0], alone[1]);
    SamplingParams unseeded = params;
    unseeded.seed.reset();
    EXPECT_NE(fake.Ask(Prompt(2, 40), unseeded)->tokens(),
              fake.Ask(Prompt(2, 40), unseeded)->tokens());
  }
  FakeEngine fake({.num_blocks = 160, .max_num_batched_tokens = 33, .num_threads = 2, .loop = {}});
  std::vector<std::shared_ptr<CollectingSink>> others;
  for (unsigned i = 0; i < 20; ++i) {
    others.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(fake.Submit(Prompt(i, 20), GreedyFor(50), others.back()));
  }
  const auto sink = fake.Ask(Prompt(2, 40), params, 3);
  for (size_t j = 0; j < 3; ++j) EXPECT_EQ(sink->sequences[j].tokens, alone[j]);
  for (const auto& other : others) EXPECT_TRUE(other->WaitForEnd());
}

TEST(Engine, PromptLogprobsAreCompleteInAnyChunks) {
  SamplingParams params = GreedyFor(3);
  params.prompt_logprobs = 2;
  params.logprobs = 1;
  std::vector<PromptResult> results;
  for (const int64_t rows : {1, 7, 200}) {
    FakeEngine fake({.max_num_batched_tokens = 200, .max_prompt_logit_rows = rows, .loop = {}});
    fake.Ask(Prompt(4, 50), GreedyFor(2));  // fills the prefix cache
    const auto sink = fake.Ask(Prompt(4, 50), params, 2);
    ASSERT_TRUE(sink->prompt);
    EXPECT_EQ(sink->prompt->cached_tokens, 0) << "all rows are computed";
    ASSERT_EQ(sink->prompt->logprobs.size(), 50u);
    EXPECT_FALSE(sink->prompt->logprobs[0]);
    for (size_t i = 1; i < 50; ++i) {
      ASSERT_TRUE(sink->prompt->logprobs[i]) << i;
      EXPECT_EQ(sink->prompt->logprobs[i]->token, Prompt(4, 50)[i]);
      EXPECT_EQ(sink->prompt->logprobs[i]->top.size(), 2u);
    }
    EXPECT_EQ(sink->sequences[0].logprobs.size(), 3u);
    EXPECT_EQ(sink->sequences[0].tokens, FakeModel::Greedy(Prompt(4, 50), 3));
    EXPECT_EQ(sink->sequences[1].tokens, sink->sequences[0].tokens);
    results.push_back(*sink->prompt);
  }
  for (size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(results[0].logprobs[i]->logprob, results[1].logprobs[i]->logprob);
    EXPECT_EQ(results[0].logprobs[i]->logprob, results[2].logprobs[i]->logprob);
    EXPECT_EQ(results[0].logprobs[i]->rank, results[2].logprobs[i]->rank);
  }
}

TEST(Engine, C8AFailedStepFailsItsRequestsAndTheEngineServesOn) {
  FakeEngine fake({});
  for (int i = 0; i < 2; ++i) {
    const auto sink = fake.Ask({1, FakeModel::kPoison, 2}, GreedyFor(4));
    ASSERT_TRUE(sink->error);
    EXPECT_EQ(sink->error->code, ErrorCode::kInternal);
  }
  EXPECT_EQ(fake.Ask(Prompt(1, 10), GreedyFor(4))->tokens(), FakeModel::Greedy(Prompt(1, 10), 4));
  EXPECT_TRUE(fake.engine->healthy());
  EXPECT_TRUE(fake.WaitForIdle());
}

TEST(Engine, C8ALostDeviceFailsItsRequestsAndNoneIsTakenAfterwards) {
  FakeEngine fake({.has_device = true});
  const std::vector<int32_t> poisoned = {1, FakeModel::kPoison, 2};
  EXPECT_TRUE(fake.Ask(poisoned, GreedyFor(4))->error);
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(fake.engine->healthy()) << "a step that failed is not the device's end";
  // A client that receives the failure also finds the engine unhealthy.
  class Sink final : public RequestSink {
   public:
    explicit Sink(const Engine& engine) : engine_(engine) {}
    void OnPrompt(PromptResult) override { ADD_FAILURE(); }
    void OnUpdate(SequenceUpdate) override { ADD_FAILURE(); }
    void OnError(Error error) override {
      EXPECT_EQ(error.code, ErrorCode::kInternal);
      EXPECT_FALSE(engine_.healthy());
      EXPECT_EQ(engine_.num_unfinished(), 0);
      has_failed = true;
    }
    std::atomic<bool> has_failed{false};

   private:
    const Engine& engine_;
  };
  fake.device->Lose();
  Request request;
  request.prompt = poisoned;
  request.sampling = GreedyFor(4);
  const auto sink = std::make_shared<Sink>(*fake.engine);
  request.sink = sink;
  ASSERT_TRUE(fake.engine->Submit(std::move(request)));
  EXPECT_TRUE(fake.Eventually([&] { return sink->has_failed.load(); }));
  EXPECT_TRUE(fake.WaitForIdle());
  const auto late = fake.Submit({1, 2}, GreedyFor(1), std::make_shared<CollectingSink>());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(late.error().message.find("device is lost"), std::string::npos);
}

TEST(Engine, C8ALostRankFailsAllRequestsAndIsNamedAtOnce) {
  FakeEngine fake({});
  EXPECT_TRUE(fake.Ask({1, FakeModel::kPoison, 2}, GreedyFor(4))->error);
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(fake.engine->healthy()) << "a step that failed is not the ranks' end";
  fake.model->allowed_steps = fake.model->steps + 2;
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(fake.Submit(Prompt(1, 10), GreedyFor(50), sink));
  ASSERT_TRUE(sink->WaitForTokens(1));
  EXPECT_TRUE(fake.engine->healthy());
  EXPECT_EQ(fake.engine->failure(), "");
  fake.model->lost = true;
  // The failure is reported even if nothing is being computed.
  EXPECT_FALSE(fake.engine->healthy());
  EXPECT_EQ(fake.engine->failure(), "rank 1 (process 7 on node3) has ended");
  fake.model->allowed_steps = 1000;
  ASSERT_TRUE(sink->WaitForEnd());
  ASSERT_TRUE(sink->error);
  EXPECT_NE(sink->error->message.find("rank 1 (process 7 on node3)"), std::string::npos);
  const auto late = fake.Submit({1, 2}, GreedyFor(1), std::make_shared<CollectingSink>());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(late.error().message.find("rank 1 (process 7 on node3)"), std::string::npos);
  EXPECT_TRUE(fake.WaitForIdle());
}

TEST(Engine, C8NanFailsThatRequestAlone) {
  FakeEngine fake({});
  fake.model->hang = true;  // so that both requests are in the same step
  const auto neighbour = std::make_shared<CollectingSink>();
  const auto bad = std::make_shared<CollectingSink>();
  ASSERT_TRUE(fake.Submit(Prompt(1, 10), GreedyFor(100), neighbour));
  ASSERT_TRUE(fake.Submit({1, 2, FakeModel::kNanToken}, GreedyFor(4), bad));
  fake.model->hang = false;
  ASSERT_TRUE(bad->WaitForEnd());
  ASSERT_TRUE(bad->error);
  EXPECT_NE(bad->error->message.find("NaN"), std::string::npos);
  SamplingParams params = GreedyFor(4);
  params.prompt_logprobs = 1;
  EXPECT_TRUE(fake.Ask({1, FakeModel::kNanToken, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, params)->error);
  ASSERT_TRUE(neighbour->WaitForEnd());
  EXPECT_EQ(neighbour->tokens(), FakeModel::Greedy(Prompt(1, 10), 100));
  EXPECT_TRUE(fake.WaitForIdle());
}

TEST(Engine, C8HealthIsProgress) {
  FakeEngine fake({.loop = {.watchdog_seconds = 0.05}});
  EXPECT_TRUE(fake.engine->healthy());
  fake.model->hang = true;
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(fake.Submit(Prompt(1, 4), GreedyFor(2), sink));
  EXPECT_TRUE(fake.Eventually([&] { return !fake.engine->healthy(); }));
  fake.model->hang = false;
  ASSERT_TRUE(sink->WaitForEnd());
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(fake.Eventually([&] { return fake.engine->healthy(); }));
}

TEST(Engine, C9DrainLetsRunningRequestsFinish) {
  FakeEngine fake({.loop = {.drain_seconds = 300}});
  fake.model->allowed_steps = 3;
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(fake.Submit(Prompt(1, 10), GreedyFor(50), sink));
  ASSERT_TRUE(sink->WaitForTokens(1));
  fake.engine->BeginShutdown();
  const auto late = fake.Submit(Prompt(1, 10), GreedyFor(1), std::make_shared<CollectingSink>());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  fake.model->allowed_steps = 1000;
  ASSERT_TRUE(sink->WaitForEnd());
  EXPECT_EQ(sink->tokens().size(), 50u);
  EXPECT_TRUE(fake.WaitForIdle());
}

// Each step of a beam search is a separate request.
TEST(Engine, C9AnAnswerThatHasBegunMayContinueDuringTheDrain) {
  FakeEngine fake({.loop = {.drain_seconds = 300}});
  const auto submit = [&](bool continues, const std::shared_ptr<CollectingSink>& sink) {
    Request request;
    request.prompt = Prompt(1, 10);
    request.sampling = GreedyFor(1);
    request.sink = sink;
    request.was_accepted = continues;
    return fake.engine->Submit(std::move(request));
  };
  fake.engine->BeginShutdown();
  for (int step = 0; step < 3; ++step) {
    const auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(submit(true, sink));
    ASSERT_TRUE(sink->WaitForEnd());
    EXPECT_EQ(sink->sequences[0].finish, FinishReason::kLength);
  }
  const auto other = submit(false, std::make_shared<CollectingSink>());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(fake.WaitForIdle());

  FakeEngine late({.loop = {.drain_seconds = 0}});
  late.engine->BeginShutdown();
  Request request;
  request.prompt = Prompt(1, 10);
  request.sink = std::make_shared<CollectingSink>();
  request.was_accepted = true;
  EXPECT_FALSE(late.engine->Submit(std::move(request))) << "not for ever";
}

TEST(Engine, C9AfterTheGraceTimeTheRestIsAborted) {
  FakeEngine fake({.loop = {.drain_seconds = 0.02}});
  fake.model->allowed_steps = 3;
  const auto sink = std::make_shared<CollectingSink>(2);
  ASSERT_TRUE(fake.Submit(Prompt(1, 10), GreedyFor(400), sink, 2));
  ASSERT_TRUE(sink->WaitForTokens(1));
  fake.engine->BeginShutdown();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  fake.model->allowed_steps = 1000;
  ASSERT_TRUE(sink->WaitForEnd());
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kAbort);
  EXPECT_EQ(sink->sequences[1].finish, FinishReason::kAbort);
  EXPECT_TRUE(fake.WaitForIdle());
}

TEST(Engine, DestructionEndsWhatRuns) {
  const auto sink = std::make_shared<CollectingSink>();
  {
    FakeEngine fake({.num_blocks = 1024, .max_model_len = 4000});
    fake.model->delay = std::chrono::milliseconds(20);  // 3900 tokens: more than a minute
    ASSERT_TRUE(fake.Submit(Prompt(1, 10), GreedyFor(3900), sink));
    ASSERT_TRUE(sink->WaitForTokens(1));
  }
  EXPECT_EQ(sink->sequences[0].finish, FinishReason::kAbort);
}

TEST(Engine, RefusesWhatItCannotTake) {
  FakeEngine fake({.max_model_len = 32, .loop = {.max_unfinished = 2}});
  const auto refused = [&](std::vector<int32_t> prompt, SamplingParams params, const char* param) {
    const auto handle =
        fake.Submit(std::move(prompt), std::move(params), std::make_shared<CollectingSink>());
    ASSERT_FALSE(handle) << param;
    EXPECT_EQ(handle.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(handle.error().param, param);
  };
  refused({}, GreedyFor(1), "prompt");
  refused({-1}, GreedyFor(1), "prompt");
  refused({FakeModel::kVocab}, GreedyFor(1), "prompt");
  refused(Prompt(1, 32), GreedyFor(1), "prompt");
  SamplingParams params = GreedyFor(1);
  params.logit_bias = {{FakeModel::kVocab, 1.0f}};
  refused({1}, params, "logit_bias");
  params = GreedyFor(1);
  params.allowed_token_ids = {{-5}};
  refused({1}, params, "allowed_token_ids");
  params = GreedyFor(1);
  params.bad_words = {{1, 1 << 30}};
  refused({1}, params, "bad_words");
  params = GreedyFor(1);
  params.stop_token_ids = {-1};
  refused({1}, params, "stop_token_ids");
  params = GreedyFor(1);
  params.temperature = std::nan("");
  refused({1}, params, "temperature");

  params = GreedyFor(1);
  params.prompt_logprobs = -2;
  refused({1}, params, "prompt_logprobs");

  fake.model->hang = true;
  const auto submit = [&] {
    return fake.Submit({1}, GreedyFor(1), std::make_shared<CollectingSink>());
  };
  ASSERT_TRUE(submit());
  ASSERT_TRUE(submit());
  const auto full = submit();
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kUnavailable);
  fake.engine->Abort(1);
  fake.engine->Abort(2);
  fake.model->hang = false;
  EXPECT_TRUE(fake.WaitForIdle());
}

// Measures the goal "host work below 0.3 ms a step at 32 sequences"; printed, not asserted.
TEST(Engine, HostWorkOfAStepOf32Sequences) {
  FakeEngine fake(
      {.num_blocks = 4096, .max_model_len = 2048, .max_num_batched_tokens = 2048, .loop = {}});
  fake.model->fast = true;
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  SamplingParams params = GreedyFor(300);
  for (unsigned i = 0; i < 32; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(fake.Submit(Prompt(i, 100), params, sinks.back()));
  }
  for (const auto& sink : sinks) ASSERT_TRUE(sink->WaitForEnd());
  ASSERT_TRUE(fake.WaitForIdle());
  printf("host work: %.1f us a step over %ld steps of up to 32 sequences\n",
         1e6 * fake.observer.host_seconds / static_cast<double>(fake.observer.steps),
         fake.observer.steps.load());
}

TEST(Engine, IdleUsesNoCpu) {
  FakeEngine fake({.num_threads = 2, .loop = {}});
  fake.Ask(Prompt(1, 10), GreedyFor(5));
  ASSERT_TRUE(fake.WaitForIdle());
  const auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  // On a busy machine, threads may go to sleep late. But threads that never sleep would use CPU
  // time in every measured window.
  double used = 1;
  for (int window = 0; window < 20 && used >= 0.02; ++window) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    used = cpu_seconds() - before;
  }
  EXPECT_LT(used, 0.02);
}

}  // namespace
}  // namespace sluice
