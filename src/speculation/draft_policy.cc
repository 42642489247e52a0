#include "speculation/draft_policy.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kWeight = 0.2;       // weight of a new measurement in an average
constexpr double kKeepOfOne = 0.95;   // decay per token of a sequence's acceptance
constexpr double kKeepOfAll = 0.995;  // decay per token of the acceptance of all sequences
constexpr double kFirstShare = 0.7;   // prior of the share of accepted tokens
constexpr double kFirstTokens = 4;    // weight of that prior, in tokens
constexpr double kRowShare = 0.02;    // prior of the cost of one more row, as a share of a step
// Prior: catching up computes many tokens per pass.
constexpr double kTokensOfAPass = 16;
constexpr double kLeastGain = 1.03;
// Most answers end well before their limit: assume at most this many more tokens.
constexpr double kLikelyLeft = 256;
constexpr int64_t kPlainEvery = 32;
constexpr int64_t kTriedLength = 2;
constexpr double kMostCredit = 8;

}  // namespace

DraftPolicy::DraftPolicy(double cost_ratio, bool adaptive)
    : cost_ratio_(cost_ratio),
      adaptive_(adaptive),
      all_{kFirstTokens, kFirstShare * kFirstTokens} {}

double DraftPolicy::AcceptanceOf(const DraftAcceptance& acceptance) const {
  // The acceptance of all sequences counts as a few tokens of this one.
  const double share = all_.accepted / all_.verified;
  return (acceptance.accepted + kFirstTokens * share) / (acceptance.verified + kFirstTokens);
}

double DraftPolicy::StepSeconds(int64_t num_sequences) const {
  const auto wanted = std::min(num_sequences, kMostSequences);
  for (int64_t distance = 0; distance <= kMostSequences; ++distance) {
    for (const int64_t place : {wanted - distance, wanted + distance}) {
      if (place < 0 || place > kMostSequences) continue;
      const Average& step = steps_[static_cast<size_t>(place)];
      if (step.known) return step.value;
    }
  }
  return pass_.known ? pass_.value / cost_ratio_ : 1;
}

double DraftPolicy::PassSeconds() const {
  return pass_.known ? pass_.value : cost_ratio_ * StepSeconds(1);
}

double DraftPolicy::RowSeconds(int64_t num_sequences) const {
  return (row_share_.known ? row_share_.value : kRowShare) * StepSeconds(num_sequences);
}

double DraftPolicy::TokenSeconds() const {
  return token_.known ? token_.value : PassSeconds() / kTokensOfAPass;
}

int64_t DraftPolicy::BestLength(int64_t num_sequences, std::span<const Candidate> candidates,
                                double& gain) const {
  const double step = StepSeconds(num_sequences), pass = PassSeconds();
  const double row = RowSeconds(num_sequences);
  const auto plain = static_cast<double>(num_sequences);
  int64_t longest = 0, best = 0;
  for (const Candidate& candidate : candidates) longest = std::max(longest, candidate.most);
  gain = 1;
  double tokens = plain, seconds = step;
  for (int64_t length = 1; length <= longest; ++length) {
    seconds += pass;
    for (const Candidate& candidate : candidates) {
      if (candidate.most < length) continue;
      const double more =
          std::pow(AcceptanceOf(*candidate.acceptance), static_cast<double>(length));
      // Does not pay for this sequence, even if the pass cost nothing.
      if (more * step < row * plain) continue;
      tokens += more;
      seconds += row;
    }
    const double faster = tokens / seconds * step / plain;
    if (faster <= gain) continue;
    gain = faster;
    best = length;
  }
  if (gain >= kLeastGain) return best;
  gain = 1;
  return 0;
}

double DraftPolicy::SavedSeconds(int64_t num_sequences, int64_t left, double gain) const {
  return std::min(static_cast<double>(left), kLikelyLeft) * StepSeconds(num_sequences) *
         (1 - 1 / gain);
}

bool DraftPolicy::PaysToCatchUp(int64_t num_sequences, int64_t behind, int64_t left,
                                const DraftAcceptance& acceptance) const {
  if (left < 1) return false;
  if (!adaptive_) return true;
  constexpr int64_t kLength = 8;
  std::array<Candidate, kMostSequences> alike;
  const auto count = static_cast<size_t>(std::clamp<int64_t>(num_sequences, 1, kMostSequences));
  alike.fill({.acceptance = &acceptance, .most = kLength});
  double gain = 1;
  BestLength(static_cast<int64_t>(count), std::span(alike).first(count), gain);
  return static_cast<double>(behind) * TokenSeconds() <=
         SavedSeconds(num_sequences, left, gain) / 2;
}

void DraftPolicy::Choose(int64_t num_sequences, std::span<Candidate> candidates) {
  for (Candidate& candidate : candidates) candidate.length = adaptive_ ? 0 : candidate.most;
  if (!adaptive_ || candidates.empty()) return;
  if (steps_since_plain_ >= kPlainEvery) return;  // measures a step without drafts
  double gain = 1;
  const int64_t length = BestLength(num_sequences, candidates, gain);
  if (length == 0) return Try(num_sequences, candidates);
  const double step = StepSeconds(num_sequences);
  for (Candidate& candidate : candidates) {
    // The time of catching up must be saved again before the answer ends.
    const double saved = SavedSeconds(num_sequences, candidate.left, gain);
    if (static_cast<double>(candidate.behind) * TokenSeconds() > saved / 2) continue;
    const double share = AcceptanceOf(*candidate.acceptance);
    const double row = RowSeconds(num_sequences) * static_cast<double>(num_sequences);
    double more = share;
    while (candidate.length < std::min(length, candidate.most) && more * step >= row) {
      ++candidate.length;
      more *= share;
    }
  }
}

void DraftPolicy::Try(int64_t num_sequences, std::span<Candidate> candidates) {
  Candidate& nearest = *std::ranges::min_element(candidates, {}, &Candidate::behind);
  const int64_t length = std::min(kTriedLength, nearest.most);
  const double seconds = static_cast<double>(nearest.behind) * TokenSeconds() +
                         static_cast<double>(length) * (PassSeconds() + RowSeconds(num_sequences));
  const double steps = seconds / StepSeconds(num_sequences);
  if (length == 0 || steps > credit_) return;
  credit_ -= steps;
  nearest.length = length;
}

void DraftPolicy::LearnPass(double seconds) {
  pass_.Add(seconds, kWeight);
}

void DraftPolicy::LearnCatchUp(double seconds, int64_t num_tokens) {
  token_.Add(seconds / static_cast<double>(num_tokens), kWeight);
}

void DraftPolicy::LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
  credit_ = std::min(kMostCredit, credit_ + kShareOfTries);
  Average& step = steps_[static_cast<size_t>(std::min(num_sequences, kMostSequences))];
  if (num_proposed == 0) {
    step.Add(seconds, kWeight);
    steps_since_plain_ = 0;
    return;
  }
  ++steps_since_plain_;
  const auto rows = static_cast<double>(num_proposed);
  if (!step.known) return step.Add(seconds / (1 + kRowShare * rows), kWeight);
  row_share_.Add(std::clamp((seconds / step.value - 1) / rows, 0.0, 1.0), kWeight);
}

void DraftPolicy::LearnAcceptance(int num_proposed, int num_accepted, DraftAcceptance& acceptance) {
  if (num_proposed == 0) return;
  const double accepted = num_accepted;
  const double verified = std::min(num_proposed, num_accepted + 1);
  const auto learn = [&](double keep, DraftAcceptance& found) {
    const double kept = std::pow(keep, verified);
    found.verified = found.verified * kept + verified;
    found.accepted = found.accepted * kept + accepted;
  };
  learn(kKeepOfOne, acceptance);
  learn(kKeepOfAll, all_);
}

}  // namespace sluice
