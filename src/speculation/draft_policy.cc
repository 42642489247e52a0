#include "speculation/draft_policy.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kKeepOfOne = 0.95;   // decay per token of a sequence's acceptance average
constexpr double kKeepOfAll = 0.995;  // decay per token of the average over all sequences
constexpr double kFirstShare = 0.7;   // prior of the share of accepted tokens
constexpr double kFirstTokens = 4;    // weight of that prior, in tokens
// A sequence is hopeless if hardly any of its draft tokens are accepted, however many are accepted
// in other sequences. kHopelessChance is the prior probability of this, kHopelessShare is the
// fraction of its draft tokens that such a sequence accepts.
constexpr double kHopelessChance = 0.1;
constexpr double kHopelessShare = 0.03;
constexpr double kMostLikely = 0.99;  // maximum, so that logarithms of rejections exist
// Weight, in tokens, of the acceptance over all positions in the acceptance of one position.
constexpr double kPlaceTokens = 4;
// Minimum of an acceptance, because other acceptances are divided by it.
constexpr double kLeastShare = 1e-3;
constexpr double kLeastGain = 1.03;
// Most answers end well before their limit, so assume at most this many more tokens.
constexpr double kLikelyLeft = 256;
constexpr int64_t kPlainEvery = 32;
constexpr int64_t kTriedLength = 2;
constexpr double kMostCredit = 8;
// A sequence that may get at least kLeastLeft more tokens makes its first attempt without using
// credit, if the attempt takes at most kShareOfFirstTry of a step of one sequence.
constexpr double kShareOfFirstTry = 0.3;
constexpr int64_t kLeastLeft = 32;
// A try includes the sequence whose draft model has the fewest tokens to catch up, and all
// sequences with at most this many tokens more.
constexpr int64_t kTriedBehind = 64;

}  // namespace

DraftPolicy::DraftPolicy(double cost_ratio, bool adaptive, bool drafts_at_once)
    : adaptive_(adaptive),
      drafts_at_once_(drafts_at_once),
      costs_(cost_ratio),
      all_{kFirstTokens, kFirstShare * kFirstTokens} {}

double DraftPolicy::AcceptanceOf(const DraftAcceptance& acceptance) const {
  // The acceptance over all sequences counts as a few tokens of this sequence.
  const double share = all_.accepted / all_.verified;
  const double usual =
      (acceptance.accepted + kFirstTokens * share) / (acceptance.verified + kFirstTokens);
  if (share <= kHopelessShare) return usual;
  // Bayes' rule with two cases: a sequence is either like the others or hopeless. Without the
  // second case, a hopeless sequence would receive draft tokens for too long if other sequences
  // accept most of theirs.
  const double likely = std::min(share, kMostLikely);
  const double rejected = acceptance.verified - acceptance.accepted;
  const double odds = std::exp(std::log(kHopelessChance / (1 - kHopelessChance)) +
                               rejected * std::log((1 - kHopelessShare) / (1 - likely)) +
                               acceptance.accepted * std::log(kHopelessShare / likely));
  const double hopeless = odds / (1 + odds);
  return std::min(usual, kHopelessShare) * hopeless + usual * (1 - hopeless);
}

double DraftPolicy::AcceptanceAt(const DraftAcceptance& acceptance, int64_t place) const {
  const double share = std::max(kLeastShare, all_.accepted / all_.verified);
  const DraftAcceptance& found = places_[std::min(static_cast<size_t>(place), kMostPlaces - 1)];
  const double here =
      (found.accepted + kPlaceTokens * share) / (found.verified + kPlaceTokens) / share;
  return std::min(1.0, AcceptanceOf(acceptance) * here);
}

int64_t DraftPolicy::BestLength(int64_t num_sequences, std::span<const Candidate> candidates,
                                double& gain) const {
  const double step = costs_.Step(num_sequences), row = costs_.Row(num_sequences);
  const double pass = costs_.Pass(std::ssize(candidates));
  const auto plain = static_cast<double>(num_sequences);
  int64_t longest = 0, best = 0, num_proposed = 0;
  for (const Candidate& candidate : candidates) longest = std::max(longest, candidate.most);
  gain = 1;
  std::array<double, kMostSequences> right;  // probability that all tokens so far are accepted
  right.fill(1);
  double tokens = plain, passes = 0;
  for (int64_t length = 1; length <= longest; ++length) {
    if (length == 1 || !drafts_at_once_) passes += pass;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (candidate.most < length) continue;
      // Candidates beyond the size of `right` share its elements.
      double& more = right[i % right.size()];
      if (i < right.size()) more *= AcceptanceAt(*candidate.acceptance, length - 1);
      // The draft token would not pay for this sequence even if the pass cost nothing.
      if (more * step < row * plain) continue;
      tokens += more;
      ++num_proposed;
    }
    const double seconds = passes + costs_.Step(num_sequences, num_proposed);
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
  return std::min(static_cast<double>(left), kLikelyLeft) * costs_.Step(num_sequences) *
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
  return static_cast<double>(behind) * costs_.CatchUpToken() <=
         SavedSeconds(num_sequences, left, gain) / 2;
}

void DraftPolicy::Choose(int64_t num_sequences, std::span<Candidate> candidates) {
  for (Candidate& candidate : candidates) candidate.length = adaptive_ ? 0 : candidate.most;
  if (!adaptive_ || candidates.empty()) return;
  if (steps_since_plain_ >= kPlainEvery) return;  // this step measures the time without drafts
  double gain = 1;
  const int64_t length = BestLength(num_sequences, candidates, gain);
  if (length == 0) return Try(num_sequences, candidates);
  const double step = costs_.Step(num_sequences);
  for (Candidate& candidate : candidates) {
    // The time for catching up must be regained before the answer ends.
    const double saved = SavedSeconds(num_sequences, candidate.left, gain);
    if (static_cast<double>(candidate.behind) * costs_.CatchUpToken() > saved / 2) continue;
    const double row = costs_.Row(num_sequences) * static_cast<double>(num_sequences);
    double more = 1;
    while (candidate.length < std::min(length, candidate.most)) {
      more *= AcceptanceAt(*candidate.acceptance, candidate.length);
      if (more * step < row) break;
      ++candidate.length;
    }
  }
}

void DraftPolicy::Try(int64_t num_sequences, std::span<Candidate> candidates) {
  const double step = costs_.Step(num_sequences), row = costs_.Row(num_sequences);
  const int64_t nearest = std::ranges::min_element(candidates, {}, &Candidate::behind)->behind;
  // Trying several sequences at once costs more rows, but no more passes.
  double seconds =
      static_cast<double>(drafts_at_once_ ? 1 : kTriedLength) * costs_.Pass(std::ssize(candidates));
  bool is_new = false;
  for (Candidate& candidate : candidates) {
    if (candidate.behind > nearest + kTriedBehind) continue;
    candidate.length = std::min(kTriedLength, candidate.most);
    seconds += static_cast<double>(candidate.length) * row +
               static_cast<double>(candidate.behind) * costs_.CatchUpToken();
    is_new |= candidate.acceptance->verified == 0 && candidate.left >= kLeastLeft;
  }
  const double steps = seconds / step;
  // The first tokens of a sequence predict its acceptance better than all tokens of the others.
  if (is_new && steps * static_cast<double>(num_sequences) <= kShareOfFirstTry) return;
  if (steps <= credit_ && pause_ <= 0) {
    credit_ -= steps;
    pause_ = steps / kShareOfTries;
    return;
  }
  for (Candidate& candidate : candidates) candidate.length = 0;
}

void DraftPolicy::LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
  credit_ = std::min(kMostCredit, credit_ + kShareOfTries);
  pause_ = std::max(0.0, pause_ - 1);
  steps_since_plain_ = num_proposed == 0 ? 0 : steps_since_plain_ + 1;
  costs_.LearnStep(num_sequences, num_proposed, seconds);
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
  for (int place = 0; place < verified; ++place) {
    DraftAcceptance& here = places_[std::min(static_cast<size_t>(place), kMostPlaces - 1)];
    here.verified = here.verified * kKeepOfAll + 1;
    here.accepted = here.accepted * kKeepOfAll + (place < num_accepted ? 1 : 0);
  }
}

}  // namespace sluice
