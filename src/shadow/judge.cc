#include "shadow/judge.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sluice::shadow {
namespace {

// Chance does not explain a sampled answer whose likelihood differs from the expected one by more
// than this many standard deviations and more than kLeastExcess nats.
constexpr double kMostDeviations = 5;
constexpr double kLeastExcess = 3;
// A position does not count if the probabilities of its known best tokens leave more than this
// probability unknown.
constexpr double kMostUnknown = 0.01;
// Rounding changes the log probabilities of unlikely tokens more than those of likely ones.
constexpr double kLeastCompared = -7;

bool IsEnd(std::span<const int32_t> end_tokens, int32_t token) {
  return std::ranges::find(end_tokens, token) != end_tokens.end();
}

// Returns the best token at a position, without end tokens if the answer must not end there.
std::pair<int32_t, float> BestOf(const std::vector<std::pair<int32_t, float>>& top,
                                 const Ending& ending, int64_t position) {
  for (const auto& [token, logprob] : top) {
    if (position < ending.min_tokens && IsEnd(ending.end_tokens, token)) continue;
    return {token, logprob};
  }
  return top.empty() ? std::pair<int32_t, float>{-1, 0} : top.front();
}

// Returns the log probability of a token. If it is unknown, returns that of the least likely known
// token.
double LogprobOf(const std::vector<std::pair<int32_t, float>>& top, int32_t token) {
  for (const auto& [known, logprob] : top) {
    if (known == token) return logprob;
  }
  return top.empty() ? 0 : top.back().second;
}

double EndLogprob(const std::vector<std::pair<int32_t, float>>& top, const Ending& ending) {
  for (const auto& [token, logprob] : top) {
    if (IsEnd(ending.end_tokens, token)) return logprob;
  }
  return top.empty() ? 0 : top.back().second;
}

void AddDeparture(Judgement& judgement, const Departure& departure, double epsilon) {
  ++judgement.num_departures;
  const bool has_beyond = judgement.worst && judgement.worst->gap() > epsilon;
  if (has_beyond) return;
  if (!judgement.worst || departure.gap() > judgement.worst->gap()) judgement.worst = departure;
}

// A token that may be sampled, and its probability.
struct Drawable {
  int32_t token = 0;
  double probability = 0;
};

// The distribution from which tokens are sampled, in descending order.
struct Drawn {
  std::vector<Drawable> tokens;
};

// Returns nullopt if too few of the best tokens are known. The best token is always kept.
std::optional<Drawn> DrawnFrom(const TokenLogprobs& position, const Choosing& choosing) {
  const auto& top = position.top;
  if (top.empty()) return std::nullopt;
  const double t = choosing.temperature;
  std::vector<double> weights;
  double known = 0, sum = 0;
  for (const auto& [token, logprob] : top) {
    known += std::exp(static_cast<double>(logprob));
    weights.push_back(std::exp((static_cast<double>(logprob) - top[0].second) / t));
    sum += weights.back();
  }
  // All unknown tokens are at most as likely as the last known one.
  const double unknown = std::max(0.0, 1 - known);
  const double last = static_cast<double>(top.back().second);
  const double count = unknown / std::max(std::exp(last), 1e-30);
  const double tail = count * std::exp((last - top[0].second) / t);
  const bool is_cut = choosing.top_k > 0 && choosing.top_k <= std::ssize(top);
  if (!is_cut) {
    if (tail / (sum + tail) > kMostUnknown) return std::nullopt;
    sum += tail;
  }
  Drawn drawn;
  double cumulated = 0, kept = 0;
  for (size_t i = 0; i < top.size(); ++i) {
    if (choosing.top_k > 0 && static_cast<int64_t>(i) >= choosing.top_k) break;
    if (i > 0 && cumulated / sum >= choosing.top_p) break;
    if (i > 0 && weights[i] < choosing.min_p) break;
    drawn.tokens.push_back({top[i].first, weights[i]});
    cumulated += weights[i];
    kept += weights[i];
  }
  for (Drawable& token : drawn.tokens) token.probability /= kept;
  return drawn;
}

// Returns the surprise of the chosen token, its expectation and variance; nullopt if the token may
// not be sampled.
struct Surprise {
  double excess = 0, variance = 0;
};
std::optional<Surprise> SurpriseOf(const Drawn& drawn, int32_t token) {
  double mean = 0, square = 0;
  std::optional<double> found;
  for (const Drawable& candidate : drawn.tokens) {
    const double surprise = -std::log(candidate.probability);
    mean += candidate.probability * surprise;
    square += candidate.probability * surprise * surprise;
    if (candidate.token == token) found = surprise;
  }
  if (!found) return std::nullopt;
  return Surprise{*found - mean, std::max(0.0, square - mean * mean)};
}

double DeviationOf(double excess, double variance) {
  return variance > 0 ? excess / std::sqrt(variance) : 0;
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  constexpr std::string_view kNames[kNumVerdicts] = {"equal",     "tie",      "template",
                                                     "tokenizer", "sampling", "real"};
  return kNames[static_cast<int>(verdict)];
}

Judgement JudgeGreedy(const Scores& ours, const Scores& reference, const Ending& ending,
                      double epsilon) {
  Judgement judgement;
  judgement.evidence = "scores of the reference";
  const size_t count = std::min(ours.positions.size(), reference.positions.size());
  for (size_t i = 0; i < count; ++i) {
    const TokenLogprobs& score = reference.positions[i];
    const auto place = static_cast<int64_t>(i);
    const int32_t chosen = BestOf(ours.positions[i].top, ending, place).first;
    if (chosen == score.token) continue;
    const auto [best, logprob] = BestOf(score.top, ending, place);
    const Departure departure{
        .position = place,
        .upstream = score.token,
        .ours = chosen,
        .upstream_gap = std::max(0.0, static_cast<double>(logprob) - score.logprob),
        .ours_gap = chosen == best ? 0 : std::max(0.0, logprob - LogprobOf(score.top, chosen))};
    AddDeparture(judgement, departure, epsilon);
  }
  if (ending.by_end_token && !ours.next.empty() && !reference.next.empty() &&
      !IsEnd(ending.end_tokens, ours.next[0].first)) {
    const double best = reference.next[0].second;
    AddDeparture(judgement,
                 {.position = static_cast<int64_t>(count),
                  .upstream = -1,
                  .ours = ours.next[0].first,
                  .upstream_gap = std::max(0.0, best - EndLogprob(reference.next, ending)),
                  .ours_gap = std::max(0.0, best - LogprobOf(reference.next, ours.next[0].first))},
                 epsilon);
  }
  if (!judgement.worst) return judgement;
  judgement.verdict = judgement.worst->gap() > epsilon ? Verdict::kReal : Verdict::kTie;
  return judgement;
}

Judgement JudgeDrawn(const Scores& reference, const Choosing& choosing, double epsilon) {
  Judgement judgement;
  double excess = 0, variance = 0;
  for (size_t i = 0; i < reference.positions.size(); ++i) {
    const TokenLogprobs& score = reference.positions[i];
    const std::optional<Drawn> drawn = DrawnFrom(score, choosing);
    if (!drawn) continue;
    const std::optional<Surprise> surprise = SurpriseOf(*drawn, score.token);
    if (surprise) {
      excess += surprise->excess;
      variance += surprise->variance;
      continue;
    }
    // Measures by how many nats the token is less likely than the last token that may be sampled.
    const auto& last = drawn->tokens.back();
    const double gap = LogprobOf(score.top, last.token) - score.logprob;
    AddDeparture(judgement,
                 {.position = static_cast<int64_t>(i),
                  .upstream = score.token,
                  .ours = score.top[0].first,
                  .upstream_gap = std::max(0.0, gap),
                  .ours_gap = 0},
                 epsilon);
  }
  judgement.surprise = DeviationOf(excess, variance);
  if (judgement.worst && judgement.worst->gap() > epsilon) {
    judgement.verdict = Verdict::kSampling;
    judgement.evidence = "a token that the request's sampling excludes";
  } else if (std::abs(judgement.surprise) > kMostDeviations && std::abs(excess) > kLeastExcess) {
    judgement.verdict = Verdict::kSampling;
    judgement.evidence = fmt::format("tokens {} likely than draws are, by {:.1f} deviations",
                                     excess > 0 ? "less" : "more", std::abs(judgement.surprise));
  } else if (judgement.worst) {
    judgement.verdict = Verdict::kTie;
    judgement.evidence = "a token at the edge of the request's sampling";
  } else {
    judgement.evidence = "every token may be drawn";
  }
  return judgement;
}

void DrawnSums::Add(const Scores& reference, const Choosing& choosing) {
  for (const TokenLogprobs& score : reference.positions) {
    const std::optional<Drawn> drawn = DrawnFrom(score, choosing);
    if (!drawn) continue;
    const std::optional<Surprise> surprise = SurpriseOf(*drawn, score.token);
    if (!surprise) continue;
    excess += surprise->excess;
    variance += surprise->variance;
    ++tokens;
  }
}

double DrawnSums::Deviation() const {
  return DeviationOf(excess, variance);
}

std::optional<double> LargestDifference(const UpstreamLogprobs& upstream,
                                        const TokenLogprobs& reference) {
  std::optional<double> largest;
  for (const auto& [token, logprob] : upstream) {
    std::optional<double> ours;
    if (token == reference.token) ours = reference.logprob;
    for (const auto& [known, known_logprob] : reference.top) {
      if (known == token) ours = known_logprob;
    }
    if (!ours || std::max(*ours, logprob) < kLeastCompared) continue;
    largest = std::max(largest.value_or(0), std::abs(logprob - *ours));
  }
  return largest;
}

}  // namespace sluice::shadow
