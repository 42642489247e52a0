#include "sampler/draw_planner.h"

#include <bit>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kVocab = 100;
constexpr float kRemoved = -std::numeric_limits<float>::infinity();

uint32_t Bits(float number) {
  return std::bit_cast<uint32_t>(number);
}

// Plans draws that have the same history and different parameters.
class Planned {
 public:
  explicit Planned(std::vector<SamplingParams> params, int64_t most_words = 1000)
      : params_(std::move(params)), planner_(kVocab, most_words, 5) {
    for (const SamplingParams& one : params_) {
      SequenceSampling& sequence = sequences_.emplace_back();
      sequence.params = &one;
      sequence.end_tokens = std::vector<int32_t>{90, 91};
    }
    for (SequenceSampling& sequence : sequences_)
      jobs.push_back({.sequence = &sequence, .history = {tokens_, 2}, .num_output_tokens = 3});
    planner_.Plan(pool_, jobs);
  }
  std::vector<uint32_t> Words(int32_t first, int32_t count) const {
    const auto part = planner_.words().subspan(static_cast<size_t>(first));
    return {part.begin(), part.begin() + count};
  }
  std::vector<DrawJob> jobs;

 private:
  std::vector<int32_t> tokens_ = {4, 5, 4, 8, 8};  // the first two are the prompt
  std::vector<SamplingParams> params_;
  std::vector<SequenceSampling> sequences_;
  ThreadPool pool_{2};
  DrawPlanner planner_;
};

TEST(DrawPlanner, ARowThatIsDrawnFromAsItIsHasNoExtras) {
  const Planned planned({SamplingParams()});
  EXPECT_TRUE(planned.jobs[0].is_possible);
  EXPECT_EQ(planned.jobs[0].extras.is_changed, 0);
  EXPECT_EQ(planned.jobs[0].extras.logprobs, kernels::LogprobsOf::kNone);
}

TEST(DrawPlanner, ListsHaveEachTokenOnce) {
  SamplingParams params;
  params.min_tokens = 4;
  params.bad_words = {{7}, {8, 90}, {9, 8}, {7}};
  params.logit_bias = {{90, 3.0f}, {6, -200.0f}, {2, 1.5f}};
  params.presence_penalty = 1;
  const Planned planned({params});
  const kernels::DrawExtras& extras = planned.jobs[0].extras;
  ASSERT_TRUE(planned.jobs[0].is_possible);
  EXPECT_EQ(extras.is_changed, 1);
  EXPECT_THAT(planned.Words(extras.biases, 2 * extras.num_biases),
              ElementsAre(2, Bits(1.5f), 6, Bits(-100), 7, Bits(kRemoved), 90, Bits(kRemoved), 91,
                          Bits(kRemoved)));
  EXPECT_THAT(planned.Words(extras.counts, 2 * extras.num_counts), ElementsAre(4, 1, 5, 0, 8, 2));
  EXPECT_EQ(extras.presence, 1);
  EXPECT_EQ(extras.mask, -1);
  EXPECT_EQ(extras.draw_mask, -1);
}

TEST(DrawPlanner, AllowedTokensAreAMaskThatRawLogprobsDoNotSee) {
  SamplingParams params;
  params.allowed_token_ids = std::vector<int32_t>{99, 0, 33};
  params.logprobs = 5;
  const Planned planned({params});
  const kernels::DrawExtras& extras = planned.jobs[0].extras;
  EXPECT_EQ(extras.mask, -1);
  EXPECT_THAT(planned.Words(extras.draw_mask, 4), ElementsAre(1, 2, 0, 8));
  EXPECT_EQ(extras.logprobs, kernels::LogprobsOf::kRaw);
  EXPECT_EQ(extras.num_top, 5);
}

// Space is assigned in row order; rows without space are drawn on the host.
TEST(DrawPlanner, RowsForWhichThereIsNoRoomAreNotPossible) {
  SamplingParams allowed, plain, many, twice;
  allowed.allowed_token_ids = std::vector<int32_t>{3};
  many.logprobs = 6;
  twice.logit_bias = {{3, 1.0f}, {3, 2.0f}};
  const Planned planned({allowed, plain, allowed, many, twice}, 8);
  EXPECT_TRUE(planned.jobs[0].is_possible);
  EXPECT_TRUE(planned.jobs[1].is_possible);
  EXPECT_TRUE(planned.jobs[2].is_possible);
  EXPECT_FALSE(planned.jobs[3].is_possible) << "six logprobs";
  SamplingParams listed;
  listed.logprobs = 1;
  listed.logprob_token_ids = std::vector<int32_t>{7};
  EXPECT_FALSE(Planned({listed}).jobs[0].is_possible) << "logprobs of a list";
  EXPECT_FALSE(planned.jobs[4].is_possible) << "no room";
  const Planned one({allowed, allowed, plain}, 7);
  EXPECT_TRUE(one.jobs[0].is_possible);
  EXPECT_FALSE(one.jobs[1].is_possible);
  EXPECT_TRUE(one.jobs[2].is_possible);
  EXPECT_FALSE(Planned({twice}).jobs[0].is_possible) << "two sums";
}

TEST(DrawPlanner, WhatDependsOnTheLastTokensWaitsForThem) {
  SamplingParams plain, bias, penalty, word;
  bias.logit_bias = {{3, 1.0f}};
  bias.bad_words = {{4}};
  penalty.frequency_penalty = 1;
  word.bad_words = {{4, 5}};
  const auto needs = [](const SamplingParams& params) {
    SequenceSampling sequence;
    sequence.params = &params;
    return DrawNeedsHistory(sequence);
  };
  EXPECT_FALSE(needs(plain));
  EXPECT_FALSE(needs(bias));
  EXPECT_TRUE(needs(penalty));
  EXPECT_TRUE(needs(word));
}

}  // namespace
}  // namespace sluice
