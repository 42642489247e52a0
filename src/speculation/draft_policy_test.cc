#include "speculation/draft_policy.h"

#include <random>

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Candidate = DraftPolicy::Candidate;

// A draft model that is right with a given probability. The unit of time is a step, which takes one
// second.
struct Simulation {
  explicit Simulation(double pass_seconds, double row_seconds = 0.01)
      : pass(pass_seconds), row(row_seconds) {}

  // Returns the tokens per second over `steps` steps. Without drafts it is 1.
  double Run(double share, int steps, int64_t prompt = 0, int64_t most = 5) {
    DraftAcceptance acceptance;
    double seconds = 0, tokens = 0;
    int64_t behind = prompt;
    for (int i = 0; i < steps; ++i) {
      Candidate candidate{&acceptance, most, behind, 1000};
      policy.Choose(1, {&candidate, 1});
      const auto length = static_cast<int>(candidate.length);
      if (length > 0) {
        const double catching_up = static_cast<double>(behind) * pass / 16;
        if (behind > 0) policy.LearnCatchUp(catching_up, behind);
        seconds += catching_up + length * pass;
        for (int j = 0; j < length; ++j) policy.LearnPass(1, pass);
        behind = 0;
      } else {
        ++behind;
      }
      const double step = 1 + length * row;
      policy.LearnStep(1, length, step);
      seconds += step;
      int accepted = 0;
      while (accepted < length && std::bernoulli_distribution(share)(random)) ++accepted;
      policy.LearnAcceptance(length, accepted, acceptance);
      tokens += 1 + accepted;
      proposed += length;
    }
    return tokens / seconds;
  }

  DraftPolicy policy{0.1, true};
  std::mt19937 random{1};
  const double pass, row;
  int64_t proposed = 0;
};

TEST(DraftPolicy, ProposesManyWhereTheyAreRight) {
  // The upper bound is 6 tokens in 1.5 seconds, without the steps that only measure.
  EXPECT_GT(Simulation(0.1).Run(1, 400), 3.5);
  EXPECT_GT(Simulation(0.1).Run(0.8, 400), 2);
}

// If a pass takes nearly as long as a step, it pays only if it drafts many tokens at once.
TEST(DraftPolicy, ProposesManyAtOnceForTheTimeOfOnePass) {
  const auto length = [](bool at_once) {
    DraftPolicy policy(0.5, true, at_once);
    DraftAcceptance acceptance;
    for (int i = 0; i < 8; ++i) {
      policy.LearnStep(1, 0, 1);
      policy.LearnPass(1, 0.9);
    }
    Candidate candidate{&acceptance, /*most=*/5, /*behind=*/0, /*left=*/1000};
    policy.Choose(1, {&candidate, 1});
    return candidate.length;
  };
  // The prior of acceptance is 0.7: five tokens yield 2.9, the first one 1.7.
  EXPECT_EQ(length(true), 5);
  EXPECT_LT(length(false), 5);
}

TEST(DraftPolicy, CostsLittleWhereTheyAreWrong) {
  for (const double pass : {0.05, 0.1, 0.3, 1.0}) {
    EXPECT_GT(Simulation(pass).Run(0, 400), 0.97) << pass;
    EXPECT_GT(Simulation(pass).Run(0.05, 400), 0.97) << pass;
  }
}

// Without shared measurements, each request would try again.
TEST(DraftPolicy, CostsLittleInShortAnswersToLongPrompts) {
  Simulation simulation(0.2);
  double worst = 1;
  for (int request = 0; request < 50; ++request) {
    const double ratio = simulation.Run(0, 40, 2000);
    if (request > 0) worst = std::min(worst, ratio);
  }
  EXPECT_GT(worst, 0.95);
  EXPECT_GT(simulation.Run(0, 40, 2000), 0.97);
}

TEST(DraftPolicy, CostsLittleInASequenceThatIsUnlikeTheOthers) {
  for (const double share : {0.6, 0.8, 1.0}) {
    Simulation simulation(0.12, 0.03);
    simulation.Run(share, 400);
    EXPECT_GT(simulation.Run(0, 64), 0.96) << share;
    EXPECT_GT(simulation.Run(share, 64), 1.2) << share;
  }
}

TEST(DraftPolicy, AModelThatIsAsSlowIsNotAsked) {
  Simulation simulation(1.0);
  EXPECT_GT(simulation.Run(1, 400), 0.97);
  EXPECT_LT(simulation.proposed, 40);
}

TEST(DraftPolicy, FindsOutThatItPaysAfterAll) {
  Simulation simulation(0.1);
  simulation.Run(0, 400);
  EXPECT_GT(simulation.Run(1, 1000), 2);
}

// A sequence whose draft tokens are accepted still gets some, even if all draft tokens of the
// others were rejected.
TEST(DraftPolicy, TriesEachSequence) {
  Simulation simulation(0.1);
  simulation.Run(0, 2000);
  EXPECT_GT(simulation.Run(0.9, 60), 1.6);
}

TEST(DraftPolicy, TriesSeveralSequencesAtOnce) {
  DraftPolicy policy(0.1, true);
  std::array<DraftAcceptance, 4> found;
  int tried_together = 0;
  for (int i = 0; i < 1000; ++i) {
    std::array<Candidate, 4> candidates;
    for (size_t k = 0; k < 4; ++k) candidates[k] = {&found[k], 4, 0, 1000};
    policy.Choose(4, candidates);
    int64_t proposed = 0;
    for (size_t k = 0; k < 4; ++k) {
      proposed += candidates[k].length;
      policy.LearnAcceptance(static_cast<int>(candidates[k].length), 0, found[k]);
    }
    if (proposed > 0) policy.LearnPass(4, 0.1);
    policy.LearnStep(4, proposed, 1 + 0.02 * static_cast<double>(proposed));
    if (i > 500 && candidates[0].length > 0 && candidates[3].length > 0) ++tried_together;
  }
  EXPECT_GT(tried_together, 5);
}

TEST(DraftPolicy, MayBeToldToProposeAnyway) {
  DraftPolicy policy(1, /*adaptive=*/false);
  DraftAcceptance acceptance;
  for (int i = 0; i < 50; ++i) policy.LearnAcceptance(4, 0, acceptance);
  Candidate candidate{&acceptance, 7, 5000, 1};
  policy.Choose(1, {&candidate, 1});
  EXPECT_EQ(candidate.length, 7);
}

TEST(DraftPolicy, AsksMoreOfSequencesThatAccept) {
  DraftPolicy policy(0.05, true);
  DraftAcceptance good, bad;
  for (int i = 0; i < 100; ++i) policy.LearnStep(2, 0, 1);
  for (int i = 0; i < 50; ++i) {
    policy.LearnAcceptance(4, 4, good);
    policy.LearnAcceptance(4, 0, bad);
  }
  std::array candidates = {Candidate{&good, 4, 0, 1000}, Candidate{&bad, 4, 0, 1000}};
  policy.Choose(2, candidates);
  EXPECT_EQ(candidates[0].length, 4);
  EXPECT_LE(candidates[1].length, 1);
}

// The first draft token makes a step 50 % longer, and further ones add nothing. Some devices behave
// like this: only products with several rows are slow there.
TEST(DraftPolicy, LearnsCostsThatAreNotInProportion) {
  DraftPolicy policy(0.05, true);
  DraftAcceptance good;
  int64_t length = 0;
  for (int i = 0; i < 200; ++i) {
    Candidate candidate{&good, 6, 0, 1000};
    policy.Choose(1, {&candidate, 1});
    length = std::max(candidate.length, i < 100 ? 0 : length);
    for (int64_t k = 0; k < candidate.length; ++k) policy.LearnPass(1, 0.05);
    policy.LearnStep(1, candidate.length, candidate.length > 0 ? 1.5 : 1);
    policy.LearnAcceptance(static_cast<int>(candidate.length), static_cast<int>(candidate.length),
                           good);
  }
  EXPECT_EQ(length, 6);
}

// A single step that had to wait for something else does not turn off drafts for the rest of the
// run.
TEST(DraftPolicy, ForgetsASlowStep) {
  DraftPolicy policy(0.1, true);
  DraftAcceptance good;
  int proposed = 0;
  for (int i = 0; i < 3000; ++i) {
    Candidate candidate{&good, 4, 0, 1000};
    policy.Choose(1, {&candidate, 1});
    for (int64_t k = 0; k < candidate.length; ++k) policy.LearnPass(1, 0.1);
    const double row = i < 200 ? 3 : 0.01;
    policy.LearnStep(1, candidate.length, 1 + row * static_cast<double>(candidate.length));
    policy.LearnAcceptance(static_cast<int>(candidate.length), static_cast<int>(candidate.length),
                           good);
    if (i >= 1500) proposed += static_cast<int>(candidate.length);
  }
  EXPECT_GT(proposed, 4 * 1200);
}

// The later a draft token of a head is, the less often it is accepted.
TEST(DraftPolicy, LearnsHowFarAheadTokensAreRight) {
  DraftPolicy policy(0.1, true);
  DraftAcceptance found;
  int64_t longest = 0;
  for (int i = 0; i < 400; ++i) {
    Candidate candidate{&found, 8, 0, 1000};
    policy.Choose(1, {&candidate, 1});
    const auto length = static_cast<int>(candidate.length);
    for (int k = 0; k < length; ++k) policy.LearnPass(1, 0.1);
    policy.LearnStep(1, length, 1 + 0.01 * length);
    policy.LearnAcceptance(length, std::min(length, 2), found);
    if (i >= 200) longest = std::max(longest, candidate.length);
  }
  EXPECT_GE(longest, 2);
  EXPECT_LE(longest, 3);
}

TEST(DraftPolicy, CatchesUpOnlyWhatComesBack) {
  DraftPolicy policy(0.1, true);
  DraftAcceptance good;
  for (int i = 0; i < 40; ++i) policy.LearnAcceptance(4, 4, good);
  policy.LearnStep(1, 0, 1);
  policy.LearnCatchUp(1, 100);
  const auto length = [&](int64_t behind, int64_t left) {
    Candidate candidate{&good, 4, behind, left};
    policy.Choose(1, {&candidate, 1});
    return candidate.length;
  };
  EXPECT_EQ(length(2000, 1000), 4);  // catching up takes 20 s and saves about 150 s
  EXPECT_EQ(length(2000, 10), 0);
}

}  // namespace
}  // namespace sluice
