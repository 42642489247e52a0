// Decides what a difference between two servers' answers is. Pure: numbers in, verdict out.
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

// In the order of severity.
enum class Verdict {
  kEqual,      // every token is the one that ours chooses, or may draw
  kTie,        // another token whose log probability differs by at most epsilon
  kTemplate,   // the texts of the prompts differ
  kTokenizer,  // the token ids of equal texts differ
  kSampling,   // equal numbers, but another rule of choosing
  kReal,       // the numbers differ by more than epsilon
};
inline constexpr int kNumVerdicts = 6;
std::string_view VerdictName(Verdict verdict);  // "equal", "tie", ...

// The upstream's answer under one model: positions[i] scores token i given all before it, and
// `next` the tokens that could follow. `top` of each holds the best ones in descending order.
struct Scores {
  std::vector<TokenLogprobs> positions;
  std::vector<std::pair<int32_t, float>> next;
};

// A position at which ours would have gone on otherwise.
struct Departure {
  int64_t position = 0;
  int32_t upstream = -1;  // token; -1: the end of the answer
  int32_t ours = -1;
  // How much less likely than the best token they are in the reference, in nats.
  double upstream_gap = 0, ours_gap = 0;

  double gap() const { return upstream_gap > ours_gap ? upstream_gap : ours_gap; }
};

struct Judgement {
  Verdict verdict = Verdict::kEqual;
  int64_t num_departures = 0;
  // The first departure beyond epsilon, else the widest; nullopt if there is none.
  std::optional<Departure> worst;
  double surprise = 0;   // of a drawn answer: deviations from the expected log probability
  std::string evidence;  // what the verdict rests on
};

// How an answer ended, for the judgement of its last position.
struct Ending {
  bool by_end_token = false;  // the model's end token ended it, not a stop string or a length
  std::span<const int32_t> end_tokens;
  int64_t min_tokens = 0;  // end tokens are not chosen before
};

// An answer that takes the best token each time. A departure beyond `epsilon` is kReal until
// JudgeNumbers says otherwise.
Judgement JudgeGreedy(const Scores& ours, const Scores& reference, const Ending& ending,
                      double epsilon);

// An answer that is drawn: whether each token may be drawn, with `epsilon` of tolerance, and
// whether the log probabilities are as one expects. `reference` should have many `top`s: positions
// of which they leave more than 1 % unknown do not count.
Judgement JudgeDrawn(const Scores& reference, const Choosing& choosing, double epsilon);

// Sums over drawn answers, to find differences too small to show in one answer.
struct DrawnSums {
  double excess = 0;    // of surprise over its expectation, in nats
  double variance = 0;  // of the surprise
  int64_t tokens = 0;

  void Add(const Scores& reference, const Choosing& choosing);
  // In standard deviations.
  double Deviation() const;
};

// The upstream's own log probabilities at a position, by token.
using UpstreamLogprobs = std::vector<std::pair<int32_t, double>>;

// The largest difference of log probabilities of the tokens that both know, without those that both
// find less likely than exp(-7); nullopt if there is none.
std::optional<double> LargestDifference(const UpstreamLogprobs& upstream,
                                        const TokenLogprobs& reference);

}  // namespace sluice::shadow
