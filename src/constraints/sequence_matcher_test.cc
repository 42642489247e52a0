#include "constraints/sequence_matcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "constraints/matcher_queue.h"

namespace sluice {
namespace {

using Answer = SequenceMatcher::Answer;

// Advance accepts every token except 7. A mask allows only the token whose id is the number of
// tokens so far. Masks take no real time, but `mask_seconds` are reported.
class CostlyMatcher final : public TokenMatcher {
 public:
  explicit CostlyMatcher(double mask_seconds) : mask_seconds_(mask_seconds) {}
  bool Advance(int32_t token) override {
    if (is_stopped_ || token == 7) return false;
    ++count_;
    return true;
  }
  bool FillMask(std::span<uint32_t> mask) override {
    if (is_stopped_) return false;
    is_stopped_ = mask_seconds_ > most_;
    spent_ += std::min(most_, mask_seconds_);
    mask[0] = 1u << (count_ % 32);
    return !is_stopped_;
  }
  void RollBack(int num_tokens) override { count_ -= num_tokens; }
  void Reset() override {
    count_ = 0;
    is_stopped_ = false;
  }
  bool is_finished() const override { return false; }
  void LimitCalls(double cpu_seconds) override { most_ = cpu_seconds; }
  bool is_stopped() const override { return is_stopped_; }
  double cpu_seconds() const override { return spent_; }

 private:
  const double mask_seconds_;
  double most_ = 1e9, spent_ = 0;
  int count_ = 0;
  bool is_stopped_ = false;
};

std::shared_ptr<SequenceMatcher> Costly(double seconds,
                                        std::shared_ptr<RequestBudget> request = nullptr) {
  return std::make_shared<SequenceMatcher>(std::make_unique<CostlyMatcher>(seconds),
                                           std::move(request));
}

void WaitUntilBack(MatcherQueue& queue, const SequenceMatcher& matcher) {
  const auto begin = std::chrono::steady_clock::now();
  while (matcher.is_away() && std::chrono::steady_clock::now() - begin < std::chrono::minutes(1))
    queue.WaitForOne(0.1);
  ASSERT_FALSE(matcher.is_away());
}

TEST(SequenceMatcherTest, QuickWorkIsDoneInTheStepAndCharged) {
  StepBudget step;
  const auto matcher = Costly(0.001);
  matcher->UseStepBudget(&step);
  step.Renew(1);
  uint32_t mask = 0;
  const std::vector<int32_t> output = {1, 2, 3};
  EXPECT_EQ(matcher->CatchUp(output), Answer::kYes);
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kYes);
  EXPECT_EQ(mask, 1u << 3);
  EXPECT_FALSE(matcher->is_slow());
  EXPECT_NEAR(step.left(), StepBudget::kSeconds - 0.001, 1e-9);
  EXPECT_NEAR(matcher->TakeUncharged(), 0.001, 1e-9);
  EXPECT_EQ(matcher->TakeUncharged(), 0);
}

TEST(SequenceMatcherTest, WhatTakesLongerThanAStepHasIsLateAndDoneByTheQueue) {
  StepBudget step;
  MatcherQueue queue(1);
  const auto matcher = Costly(0.05);
  matcher->UseStepBudget(&step);
  uint32_t mask = 0;
  const std::vector<int32_t> output = {1, 2, 3};
  EXPECT_EQ(matcher->CatchUp(output), Answer::kYes);
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kLate);
  EXPECT_TRUE(matcher->is_slow());
  // The matcher was interrupted: it is unusable until the queue has started it again.
  EXPECT_EQ(matcher->CatchUp(output), Answer::kLate);
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kLate);
  queue.Submit(matcher, output, /*client=*/1);
  WaitUntilBack(queue, *matcher);
  EXPECT_TRUE(matcher->has_mask());
  EXPECT_EQ(matcher->CatchUp(output), Answer::kYes);
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kYes);
  EXPECT_EQ(mask, 1u << 3);
  EXPECT_NEAR(matcher->TakeUncharged(), 0.05 + SequenceMatcher::kCallSeconds, 1e-9);
  // The mask for the next token is not computed yet.
  EXPECT_EQ(matcher->Advance(4), Answer::kYes);
  EXPECT_FALSE(matcher->has_mask());
}

TEST(SequenceMatcherTest, AStepWithoutTimeLeftDoesNoWork) {
  StepBudget step;
  const auto matcher = Costly(0.001);
  matcher->UseStepBudget(&step);
  step.Spend(1);
  uint32_t mask = 0;
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kLate);
  EXPECT_FALSE(matcher->is_slow()) << "it was others who took the time";
  step.Renew(1);
  EXPECT_EQ(matcher->FillMask({&mask, 1}), Answer::kYes);
}

TEST(SequenceMatcherTest, ForbiddenTokensAreErrorsOnlyInTheOutput) {
  const auto matcher = Costly(0);
  EXPECT_EQ(matcher->Advance(7), Answer::kNo);
  EXPECT_EQ(matcher->error(), "");
  const std::vector<int32_t> output = {1, 7};
  EXPECT_EQ(matcher->CatchUp(output), Answer::kNo);
  EXPECT_NE(matcher->error(), "");
  MatcherQueue queue(1);
  const auto other = Costly(0);
  queue.Submit(other, output, 1);
  WaitUntilBack(queue, *other);
  EXPECT_NE(other->error(), "");
  EXPECT_EQ(other->CatchUp(output), Answer::kNo);
}

TEST(SequenceMatcherTest, ARequestsTimeIsThatOfAllItsSequencesAndGrowsWithTokens) {
  const auto request = std::make_shared<RequestBudget>();
  const auto a = Costly(3, request), b = Costly(3, request);
  uint32_t mask = 0;
  EXPECT_EQ(a->FillMask({&mask, 1}), Answer::kYes);
  EXPECT_EQ(b->FillMask({&mask, 1}), Answer::kYes);
  EXPECT_EQ(a->FillMask({&mask, 1}), Answer::kNo);
  EXPECT_NE(a->error().find("processor time"), std::string_view::npos);
  MatcherQueue queue(1);
  queue.Submit(b, {}, 1);
  WaitUntilBack(queue, *b);
  EXPECT_NE(b->error().find("processor time"), std::string_view::npos);

  const auto longer = std::make_shared<RequestBudget>();
  longer->Spend(RequestBudget::kSeconds + 1);
  EXPECT_TRUE(longer->is_spent());
  for (int i = 0; i < 1000; ++i) longer->AddToken();
  EXPECT_FALSE(longer->is_spent());
}

TEST(MatcherQueueTest, WhatNobodyOwnsAnyMoreIsDroppedAndTheEndDoesNotWaitForIt) {
  MatcherQueue queue(1);
  for (int i = 0; i < 100; ++i) queue.Submit(Costly(1), std::vector<int32_t>(1000, 1), i % 3);
  const auto matcher = Costly(1);
  queue.Submit(matcher, {}, 5);
  WaitUntilBack(queue, *matcher);
  EXPECT_TRUE(matcher->has_mask());
}

// One client has a hundred waiting matchers, another has one.
TEST(MatcherQueueTest, ClientsTakeTurns) {
  class SleepingMatcher final : public TokenMatcher {
   public:
    bool Advance(int32_t) override { return true; }
    bool FillMask(std::span<uint32_t>) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return true;
    }
    void RollBack(int) override {}
    void Reset() override {}
    bool is_finished() const override { return false; }
  };
  MatcherQueue queue(1);
  std::vector<std::shared_ptr<SequenceMatcher>> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(std::make_shared<SequenceMatcher>(std::make_unique<SleepingMatcher>()));
    queue.Submit(many.back(), {}, 1);
  }
  const auto one = std::make_shared<SequenceMatcher>(std::make_unique<SleepingMatcher>());
  queue.Submit(one, {}, 2);
  WaitUntilBack(queue, *one);
  EXPECT_TRUE(many.back()->is_away()) << "it came last";
}

}  // namespace
}  // namespace sluice
