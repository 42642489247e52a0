// Constraints whose masks take too long for a step neither delay other requests nor change answers.
#include <chrono>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::StripeConstraint;

using LateSinks = std::vector<std::shared_ptr<CollectingSink>>;

std::shared_ptr<CollectingSink> SubmitLate(FakeEngine& engine, std::vector<int32_t> prompt,
                                           const SamplingParams& params,
                                           std::shared_ptr<const Constraint> constraint,
                                           int n = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = params;
  request.constraint = std::move(constraint);
  request.num_sequences = n;
  const auto sink = std::make_shared<CollectingSink>(n);
  request.sink = sink;
  EXPECT_TRUE(engine.engine->Submit(std::move(request)));
  return sink;
}

SamplingParams SampledFor(int64_t max_tokens) {
  SamplingParams params = testing::GreedyFor(max_tokens);
  params.temperature = 1;
  params.seed = 5;
  params.ignore_eos = true;
  return params;
}

TEST(LateConstraintsTest, OthersDoNotWaitForThem) {
  FakeEngine engine({.num_threads = 2});
  constexpr double kMaskSeconds = 0.05;
  constexpr int kSequences = 8;
  const auto slow = SubmitLate(engine, {1, 2, 3}, SampledFor(6),
                               std::make_shared<StripeConstraint>(kMaskSeconds), kSequences);
  const auto begin = std::chrono::steady_clock::now();
  const auto quick = SubmitLate(engine, {4, 5}, SampledFor(100), nullptr);
  ASSERT_TRUE(quick->WaitForEnd());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // If the steps computed the masks themselves, this would take 6 * 8 * 0.05 s on two threads.
  EXPECT_LT(seconds, 0.5);
  {
    const std::lock_guard lock(slow->mutex);
    EXPECT_FALSE(slow->sequences[0].finish);
  }
  ASSERT_TRUE(slow->WaitForEnd());
  EXPECT_FALSE(slow->error);
}

TEST(LateConstraintsTest, AnswersAreThoseOfQuickMasks) {
  const auto answers = [](double mask_seconds, int slow_every) {
    FakeEngine engine({.num_blocks = 40, .num_threads = 2});
    LateSinks sinks;
    for (int32_t i = 0; i < 6; ++i) {
      SamplingParams params = SampledFor(12 + i);
      if (i % 2 == 0) params.temperature = 0;
      if (i == 3) params.prompt_logprobs = 2;
      sinks.push_back(SubmitLate(engine, {1, 2, 3, 4, 5, 6, 7, 8, i}, params,
                                 std::make_shared<StripeConstraint>(mask_seconds, slow_every),
                                 1 + i % 3));
    }
    std::vector<std::vector<int32_t>> all;
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->WaitForEnd());
      EXPECT_FALSE(sink->error) << sink->error->message;
      for (const auto& sequence : sink->sequences) all.push_back(sequence.tokens);
    }
    return all;
  };
  const auto quick = answers(0, 1);
  EXPECT_EQ(answers(0.006, 1), quick);
  EXPECT_EQ(answers(0.006, 3), quick);
}

TEST(LateConstraintsTest, ARequestThatLeavesIsForgotten) {
  FakeEngine engine({});
  Request request;
  request.prompt = {1, 2};
  request.sampling = SampledFor(50);
  request.constraint = std::make_shared<StripeConstraint>(0.02);
  request.num_sequences = 4;
  request.sink = std::make_shared<CollectingSink>(4);
  const auto handle = engine.engine->Submit(std::move(request));
  ASSERT_TRUE(handle);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  engine.engine->Abort(*handle);
  const auto after = SubmitLate(engine, {3}, SampledFor(5), nullptr);
  ASSERT_TRUE(after->WaitForEnd());
  EXPECT_EQ(engine.engine->num_unfinished(), 0);
}

// The simulated time of this request's masks exceeds the limit of a request.
TEST(LateConstraintsTest, ARequestThatHasUsedUpItsTimeFails) {
  class Endless final : public Constraint {
   public:
    std::unique_ptr<TokenMatcher> NewMatcher() const override {
      class Matcher final : public TokenMatcher {
       public:
        bool Advance(int32_t) override { return true; }
        bool FillMask(std::span<uint32_t> mask) override {
          std::ranges::fill(mask, ~uint32_t{0});
          seconds_ += 3;
          return true;
        }
        void RollBack(int) override {}
        void Reset() override {}
        bool is_finished() const override { return false; }
        double cpu_seconds() const override { return seconds_; }

       private:
        double seconds_ = 0;
      };
      return std::make_unique<Matcher>();
    }
    size_t bytes() const override { return 0; }
  };
  FakeEngine engine({});
  const auto sink =
      SubmitLate(engine, {1, 2}, SampledFor(100), std::make_shared<Endless>(), /*n=*/2);
  ASSERT_TRUE(sink->WaitForEnd());
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, ErrorCode::kInvalidArgument);
  EXPECT_NE(sink->error->message.find("processor time"), std::string::npos) << sink->error->message;
  EXPECT_LT(sink->sequences[0].tokens.size() + sink->sequences[1].tokens.size(), 6u);
  const auto after = SubmitLate(engine, {3}, SampledFor(5), nullptr);
  ASSERT_TRUE(after->WaitForEnd());
  EXPECT_FALSE(after->error);
}

}  // namespace
}  // namespace sluice
