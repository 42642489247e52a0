// Classifies the difference between two servers' answers. Pure functions of numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampler/token_logprobs.h"
#include "shadow/asked.h"

namespace sluice::shadow {

// In ascending order of severity.
enum class Verdict {
  kEqual,      // every token is the model's own choice, or one that it may sample
  kTie,        // a token differs, but its log probability differs by at most epsilon
  kTemplate,   // the texts of the prompts differ
  kTokenizer,  // the token ids of equal texts differ
  kSampling,   // the log probabilities are equal, but the sampling rule differs
  kReal,       // the log probabilities differ by more than epsilon
};
inline constexpr int kNumVerdicts = 6;
std::string_view VerdictName(Verdict verdict);  // "equal", "tie", ...

// The upstream's answer, scored by one model: positions[i] scores token i given all tokens before
// it, and `next` scores the tokens that could follow. `top` of each position contains the best
// tokens in descending order.
struct Scores {
  std::vector<TokenLogprobs> positions;
  std::vector<std::pair<int32_t, float>> next;
};

// A position at which this program's model would have chosen another token.
struct Departure {
  int64_t position = 0;
  int32_t upstream = -1;  // token of the upstream; -1: the end of the answer
  int32_t ours = -1;
  // By how many nats each server's token is less likely than the reference's best token.
  double upstream_gap = 0, ours_gap = 0;

  double gap() const { return upstream_gap > ours_gap ? upstream_gap : ours_gap; }
};

struct Judgement {
  Verdict verdict = Verdict::kEqual;
  int64_t num_departures = 0;
  // The first difference beyond epsilon, else the largest difference; nullopt if there is none.
  std::optional<Departure> worst;
  double surprise = 0;   // for a sampled answer: its deviation from the expected log probability
  std::string evidence;  // the numbers on which the verdict is based
};

// How an answer ended, to judge its last position.
struct Ending {
  bool by_end_token = false;  // the model's end token ended it, not a stop string or a length
  std::span<const int32_t> end_tokens;
  int64_t min_tokens = 0;  // end tokens are not chosen before this many tokens
};

// Judges a greedy answer: kEqual without a Departure, kTie if no gap() exceeds `epsilon`, else
// kReal, which Comparer::JudgeNumbers may change to kSampling.
Judgement JudgeGreedy(const Scores& ours, const Scores& reference, const Ending& ending,
                      double epsilon);

// Judges a sampled answer: checks that each token may be sampled, with a tolerance of `epsilon`,
// and that the log probabilities are as expected. `reference` should have many `top` tokens: a
// position does not count if the probabilities of its `top` tokens add up to less than 99 %.
Judgement JudgeDrawn(const Scores& reference, const Choosing& choosing, double epsilon);

// Sums over sampled answers, which show differences too small to be seen in one answer.
struct DrawnSums {
  double excess = 0;    // sum of (surprise minus expected surprise), in nats
  double variance = 0;  // sum of the variances of the surprise
  int64_t tokens = 0;

  void Add(const Scores& reference, const Choosing& choosing);
  // Returns `excess` in standard deviations.
  double Deviation() const;
};

// The upstream's own log probabilities at a position, by token.
using UpstreamLogprobs = std::vector<std::pair<int32_t, double>>;

// Returns the largest difference of log probabilities over the tokens that both lists contain,
// except tokens that are less likely than exp(-7) in both; nullopt if there are none.
std::optional<double> LargestDifference(const UpstreamLogprobs& upstream,
                                        const TokenLogprobs& reference);

}  // namespace sluice::shadow
