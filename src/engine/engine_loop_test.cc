// The engine's thread, with other threads that call it at random times.
#include "engine/engine_loop.h"

#include <algorithm>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::GreedyFor;

TEST(EngineLoop, ARefusedRequestTakesNoRoomFromOthers) {
  FakeEngine fake(
      {.num_blocks = 4096, .max_model_len = 2000, .loop = {.max_unfinished_tokens = 2000}});
  fake.model->hang = true;
  const std::vector<int32_t> half(1000, 1);
  ASSERT_TRUE(fake.Submit(half, GreedyFor(1), std::make_shared<CollectingSink>()));
  std::atomic<bool> is_over{false};
  std::atomic<int> num_refused{0};
  std::thread greedy([&] {
    const auto sink = std::make_shared<CollectingSink>();
    for (; !is_over; ++num_refused)
      EXPECT_FALSE(fake.Submit({1}, GreedyFor(1), sink, 1001)) << "there is room for a thousand";
  });
  while (num_refused == 0) std::this_thread::yield();
  for (int i = 0; i < 900; ++i) {
    const auto handle = fake.Submit({1}, GreedyFor(1), std::make_shared<CollectingSink>());
    EXPECT_TRUE(handle) << i << ": " << handle.error().message;
    if (!handle) break;
  }
  is_over = true;
  greedy.join();
  fake.model->hang = false;
  EXPECT_TRUE(fake.WaitForIdle());
}

TEST(EngineLoop, SequencesAreLimitedToo) {
  FakeEngine fake({.loop = {.max_unfinished_sequences = 10}});
  fake.model->hang = true;
  const auto submit = [&](int n) {
    return fake.Submit({1}, GreedyFor(1), std::make_shared<CollectingSink>(n), n);
  };
  EXPECT_TRUE(submit(8));
  const auto full = submit(3);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(submit(2));
  fake.model->hang = false;
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_TRUE(submit(10));
  EXPECT_TRUE(fake.WaitForIdle());
}

// If no request is unfinished after BeginShutdown, no later request can be accepted. So the caller
// may exit.
TEST(EngineLoop, C9NothingIsTakenInOnceShutdownHasBegun) {
  for (int round = 0; round < 10; ++round) {
    FakeEngine fake({.num_blocks = 4096, .max_model_len = 1000, .loop = {.drain_seconds = 300}});
    fake.model->hang = true;
    std::atomic<int> num_taken{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&] {
        const std::vector<int32_t> prompt(900, 1);
        while (fake.Submit(prompt, GreedyFor(1), std::make_shared<CollectingSink>())) ++num_taken;
      });
    }
    while (num_taken < 5) std::this_thread::yield();
    fake.engine->BeginShutdown();
    const int64_t unfinished = fake.engine->num_unfinished();
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(fake.engine->num_unfinished(), unfinished);
    EXPECT_EQ(unfinished, num_taken);
    fake.model->hang = false;
  }
}

// A client that stops, leaves and submits further requests from within its callbacks.
class RestlessSink final : public RequestSink {
 public:
  enum class Habit { kPatient, kStops, kLeaves };

  RestlessSink(Engine* engine, Habit habit, size_t patience, std::vector<int32_t> expected, int n)
      : engine_(engine),
        habit_(habit),
        patience_(patience),
        expected_(std::move(expected)),
        sequences_(static_cast<size_t>(n)) {}

  void OnPrompt(PromptResult) override { EXPECT_FALSE(std::exchange(has_prompt_, true)); }
  void OnUpdate(SequenceUpdate update) override {
    Sequence& sequence = sequences_.at(static_cast<size_t>(update.sequence));
    EXPECT_FALSE(sequence.finish) << "news after the end";
    EXPECT_TRUE(has_prompt_ || update.tokens.empty());
    for (const int32_t token : update.tokens) {
      ASSERT_LT(sequence.num_tokens, expected_.size());
      EXPECT_EQ(token, expected_[sequence.num_tokens++]);
    }
    sequence.finish = update.finish;
    if (update.finish) ++num_ended;
    if (habit_ == Habit::kStops && sequence.num_tokens >= patience_)
      engine_->StopSequence(handle, update.sequence);
    if (habit_ == Habit::kLeaves && sequence.num_tokens >= patience_) Leave();
  }
  void OnError(Error error) override { ADD_FAILURE() << error.message; }

  void Leave() {
    has_left = true;
    engine_->Abort(handle);
  }
  bool IsOver() const { return has_left || num_ended == static_cast<int>(sequences_.size()); }
  // REQUIRES: the engine is idle or destroyed.
  void CheckEnds(bool may_be_cut) const {
    for (const Sequence& sequence : sequences_) {
      if (has_left && !sequence.finish) continue;
      ASSERT_TRUE(sequence.finish);
      const bool is_whole = sequence.num_tokens == expected_.size();
      switch (*sequence.finish) {
        case FinishReason::kLength: EXPECT_TRUE(is_whole); break;
        case FinishReason::kStop: EXPECT_EQ(habit_, Habit::kStops); break;
        default: EXPECT_TRUE(may_be_cut);
      }
    }
  }

  std::atomic<RequestHandle> handle{0};  // not yet known at the first update
  std::atomic<bool> has_left{false};
  std::atomic<int> num_ended{0};

 private:
  struct Sequence {
    size_t num_tokens = 0;
    std::optional<FinishReason> finish;
  };
  Engine* const engine_;
  const Habit habit_;
  const size_t patience_;
  const std::vector<int32_t> expected_;
  std::vector<Sequence> sequences_;  // used by the engine's thread only
  bool has_prompt_ = false;          // used by the engine's thread only
};

enum class Ending { kAllFinish, kShutdown, kDestruction };

class RestlessClients : public ::testing::TestWithParam<Ending> {};

TEST_P(RestlessClients, EachHearsOfOneEndAndNothingIsLeft) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    FakeEngine fake({.num_blocks = 40,
                     .max_model_len = 100,
                     .max_num_seqs = 6,
                     .max_num_batched_tokens = 20,
                     .num_threads = 2,
                     .loop = {.drain_seconds = 0.005}});
    constexpr int kClients = 3, kRequests = 25;
    std::vector<std::shared_ptr<RestlessSink>> sinks[kClients];
    std::vector<std::thread> threads;
    for (int client = 0; client < kClients; ++client) {
      threads.emplace_back([&, client] {
        std::mt19937 random(seed * 100 + static_cast<unsigned>(client));
        for (int i = 0; i < kRequests; ++i) {
          std::vector<int32_t> prompt(1 + random() % 40);
          for (size_t at = 0; at < prompt.size(); ++at)
            prompt[at] = static_cast<int32_t>((random() % 20 == 0) + at % 7);
          const auto count = static_cast<int64_t>(1 + random() % 40);
          const int n = random() % 3 == 0 ? 3 : 1;
          const auto habit = static_cast<RestlessSink::Habit>(random() % 3);
          const auto sink = std::make_shared<RestlessSink>(fake.engine.get(), habit, random() % 10,
                                                           FakeModel::Greedy(prompt, count), n);
          const bool leaves_at_once = random() % 6 == 0;
          const bool resets = random() % 6 == 0;
          Request request;
          request.prompt = std::move(prompt);
          request.sampling = GreedyFor(count);
          request.num_sequences = n;
          request.use_prefix_cache = random() % 4 != 0;
          request.sink = sink;
          const auto handle = fake.engine->Submit(std::move(request));
          if (!handle) {
            EXPECT_EQ(handle.error().code, ErrorCode::kUnavailable);
            EXPECT_EQ(GetParam(), Ending::kShutdown);
            return;
          }
          sink->handle = *handle;
          sinks[client].push_back(sink);
          if (leaves_at_once) sink->Leave();
          if (resets) fake.engine->ResetPrefixCache();
        }
      });
    }
    if (GetParam() == Ending::kShutdown) {
      EXPECT_TRUE(fake.Eventually([&] { return fake.model->steps > 20; }));
      fake.engine->BeginShutdown();
    }
    for (std::thread& thread : threads) thread.join();
    if (GetParam() == Ending::kDestruction) {
      fake.engine.reset();
    } else {
      EXPECT_TRUE(fake.WaitForIdle());
      EXPECT_TRUE(fake.engine->healthy());
      EXPECT_TRUE(fake.engine->ResetPrefixCache());
      fake.engine.reset();  // delivers the last updates
    }
    int64_t num_taken = 0;
    for (const auto& of_client : sinks) {
      for (const auto& sink : of_client) {
        ++num_taken;
        EXPECT_TRUE(sink->IsOver());
        EXPECT_EQ(sink.use_count(), 1) << "somebody is kept";
        sink->CheckEnds(GetParam() != Ending::kAllFinish);
      }
    }
    EXPECT_EQ(fake.observer.finished, num_taken);
    EXPECT_EQ(fake.observer.used_blocks, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Endings, RestlessClients,
                         ::testing::Values(Ending::kAllFinish, Ending::kShutdown,
                                           Ending::kDestruction));

}  // namespace
}  // namespace sluice
