#include "speculation/proposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Method = SpeculationConfig::Method;

SpeculationConfig Ngram(int num_tokens, int least, int most) {
  SpeculationConfig config;
  config.method = Method::kNgram;
  config.num_tokens = num_tokens;
  config.lookup_min = least;
  config.lookup_max = most;
  return config;
}

SpeculationConfig Suffix(int num_tokens) {
  SpeculationConfig config = Ngram(num_tokens, 2, 24);
  config.method = Method::kSuffix;
  config.cached_tokens = 1000;
  return config;
}

std::vector<int32_t> Proposed(Proposer& proposer, std::vector<int32_t> tokens, int64_t most = 100,
                              bool shares = true) {
  SequenceProposals state;
  std::vector<int32_t> proposal;
  proposer.Propose(tokens, 1000, shares, most, state, proposal);
  return proposal;
}

TEST(Proposer, NgramsProposeWhatFollowedTheLongestMatch) {
  Proposer proposer(Ngram(3, 2, 4));
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 4, 5, 1, 2}), ElementsAre(3, 4, 5));
  // The match 7 1 2 is longer than the later 1 2.
  EXPECT_THAT(Proposed(proposer, {7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2}), ElementsAre(3, 9, 1));
  // The latest of equally long matches wins.
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 8, 1, 2, 4, 9, 1, 2}), ElementsAre(4, 9, 1));
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 4, 5, 9, 2}), IsEmpty()) << "one token is too few";
  EXPECT_THAT(Proposed(proposer, {1}), IsEmpty());
}

TEST(Proposer, ProposesNoMoreThanAsked) {
  Proposer proposer(Ngram(3, 2, 4));
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 4, 5, 1, 2}, 2), ElementsAre(3, 4));
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 4, 5, 1, 2}, 0), IsEmpty());
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 4, 5, 1, 2}, -1), IsEmpty());
}

TEST(Proposer, WhatRepeatsGoesOnBehindTheLastToken) {
  Proposer proposer(Ngram(5, 2, 4));
  EXPECT_THAT(Proposed(proposer, {5, 5, 5}), ElementsAre(5, 5, 5, 5, 5));
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 1, 2, 3, 1, 2}), ElementsAre(3, 1, 2, 3, 1));
}

TEST(Proposer, SuffixesProposeWhatMostlyFollowed) {
  Proposer proposer(Suffix(8));
  // After 1 2, token 3 followed twice and 4 once. After 1 2 3, tokens 8 and 6 followed once each; 6
  // is the later one.
  EXPECT_THAT(Proposed(proposer, {9, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2, 3, 6, 1, 2}), ElementsAre(3, 6));
  // At most as many tokens as matched, because the factor is 1.
  EXPECT_THAT(Proposed(proposer, {5, 6, 7, 8, 9, 1, 5, 6, 7}), ElementsAre(8, 9, 1));
}

TEST(Proposer, SuffixesLookIntoPastAnswers) {
  Proposer proposer(Suffix(8));
  proposer.Remember(std::vector<int32_t>{10, 11, 12, 13});
  proposer.Remember(std::vector<int32_t>{14, 15});
  EXPECT_THAT(Proposed(proposer, {1, 10, 11}), ElementsAre(12, 13));
  EXPECT_THAT(Proposed(proposer, {1, 11, 12, 13}), IsEmpty()) << "the answer ended";
  EXPECT_THAT(Proposed(proposer, {1, 10, 11}, 100, /*shares=*/false), IsEmpty());
}

TEST(Proposer, UnlikelyTokensAreNotProposed) {
  SpeculationConfig config = Suffix(8);
  config.min_token_prob = 0.6;
  Proposer proposer(config);
  // After 1 2, tokens 3 and 4 followed once each.
  EXPECT_THAT(Proposed(proposer, {1, 2, 3, 1, 2, 4, 1, 2}), IsEmpty());
}

TEST(Proposer, ProposesFewerWhereItWasWrongAndPauses) {
  Proposer proposer(Ngram(4, 1, 1));
  SequenceProposals state;
  std::vector<int32_t> tokens(20, 7), proposal;
  const auto propose = [&] {
    proposer.Propose(tokens, 1000, false, 100, state, proposal);
    return static_cast<int>(proposal.size());
  };
  // A run of one token can be continued with as many tokens as requested.
  tokens.insert(tokens.begin(), 20, 6);
  tokens.back() = 6;
  EXPECT_EQ(propose(), 4);
  std::vector<int> sizes;
  for (int i = 0; i < 12; ++i) {
    Proposer::Learn(static_cast<int>(proposal.size()), 0, state);
    sizes.push_back(propose());
  }
  EXPECT_THAT(sizes, ElementsAre(2, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1));
  Proposer::Learn(1, 1, state);
  EXPECT_EQ(propose(), 2) << "twice what was right";
  Proposer::Learn(2, 2, state);
  EXPECT_EQ(propose(), 4);
  Proposer::Learn(4, 1, state);
  EXPECT_EQ(propose(), 2);
}

}  // namespace
}  // namespace sluice
