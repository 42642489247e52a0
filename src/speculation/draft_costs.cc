#include "speculation/draft_costs.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice {
namespace {

constexpr double kWeight = 0.2;  // weight of a new measurement in an average
// Prior: the cost of one more row, as a fraction of a step's time.
constexpr double kRowShare = 0.02;
// Upper limit of that fraction; a longer step had to wait for something else.
constexpr double kMostShare = 8;
constexpr int64_t kKeptSteps = 128;  // number of steps after which a share is measured again
// Prior: a catch-up pass computes this many tokens in the time of a pass that proposes one.
constexpr double kTokensOfAPass = 16;

}  // namespace

void DraftCosts::Average::Add(double sample, int64_t now) {
  value = known() ? value + kWeight * (sample - value) : sample;
  ++count;
  time = now;
}

void DraftCosts::Average::Add(double sample, double prior, int64_t now) {
  if (!known()) value = prior;
  ++count;
  value += std::max(kWeight, 1 / static_cast<double>(count + 1)) * (sample - value);
  time = now;
}

int DraftCosts::GroupOf(int64_t num_sequences) {
  const auto above = static_cast<uint64_t>(std::max<int64_t>(1, num_sequences) - 1);
  return std::min(static_cast<int>(std::bit_width(above)), kNumGroups - 1);
}

void DraftCosts::LearnStep(int64_t num_sequences, int64_t num_proposed, double seconds) {
  ++now_;
  Average& step = steps_[static_cast<size_t>(std::min(num_sequences, kMostSequences))];
  const auto rows = static_cast<double>(num_proposed);
  if (num_proposed == 0) return step.Add(seconds, now_);
  if (!step.known()) return step.Add(seconds / (1 + kRowShare * rows), now_);
  const auto group = static_cast<size_t>(GroupOf(num_sequences));
  const auto place = static_cast<size_t>(std::min(num_proposed, kMostProposed));
  last_proposed_[group] = static_cast<int64_t>(place);
  Average& share = shares_[group][place];
  if (now_ - share.time > kKeptSteps) share = {};
  share.Add(std::clamp(seconds / step.value - 1, 0.0, kMostShare), kRowShare * rows, now_);
}

void DraftCosts::LearnPass(int64_t num_sequences, double seconds) {
  if (!std::exchange(has_passed_, true)) return;
  const bool has_step = std::ranges::any_of(steps_, &Average::known);
  const double prior = has_step ? cost_ratio_ * Step(num_sequences) : seconds;
  passes_[static_cast<size_t>(GroupOf(num_sequences))].Add(seconds, prior, now_);
}

void DraftCosts::LearnCatchUp(int64_t num_tokens, double seconds) {
  token_.Add(seconds / static_cast<double>(num_tokens), now_);
}

double DraftCosts::Step(int64_t num_sequences) const {
  const auto wanted = std::min(num_sequences, kMostSequences);
  for (int64_t distance = 0; distance <= kMostSequences; ++distance) {
    for (const int64_t place : {wanted - distance, wanted + distance}) {
      if (place < 0 || place > kMostSequences) continue;
      const Average& step = steps_[static_cast<size_t>(place)];
      if (step.known()) return step.value;
    }
  }
  for (const Average& pass : passes_) {
    if (pass.known()) return pass.value / cost_ratio_;
  }
  return 1;
}

double DraftCosts::MoreShare(int group, int64_t num_proposed) const {
  const auto& shares = shares_[static_cast<size_t>(group)];
  const auto is_known = [&](int64_t place) {
    const Average& share = shares[static_cast<size_t>(place)];
    return share.known() && now_ - share.time <= kKeptSteps;
  };
  const auto wanted = std::min(num_proposed, kMostProposed);
  int64_t below = wanted, above = wanted;
  while (below > 0 && !is_known(below)) --below;
  while (above <= kMostProposed && !is_known(above)) ++above;
  const double least = below > 0 ? shares[static_cast<size_t>(below)].value : 0;
  if (below == wanted) return least;
  const auto more = static_cast<double>(wanted - below);
  // For more draft tokens than were measured, assumes at most the prior: if the prior is too low, a
  // single step shows it.
  if (above > kMostProposed) {
    const double slope = below > 0 ? least / static_cast<double>(below) : kRowShare;
    return least + more * std::min(slope, kRowShare);
  }
  const double most = std::max(least, shares[static_cast<size_t>(above)].value);
  return least + (most - least) * more / static_cast<double>(above - below);
}

double DraftCosts::Step(int64_t num_sequences, int64_t num_proposed) const {
  const double step = Step(num_sequences);
  return num_proposed == 0 ? step : step * (1 + MoreShare(GroupOf(num_sequences), num_proposed));
}

double DraftCosts::Row(int64_t num_sequences) const {
  const int group = GroupOf(num_sequences);
  const int64_t last = last_proposed_[static_cast<size_t>(group)];
  const int64_t count = last > 0 ? last : 1;
  return Step(num_sequences) * MoreShare(group, count) / static_cast<double>(count);
}

double DraftCosts::Pass(int64_t num_sequences) const {
  const int wanted = GroupOf(num_sequences);
  for (int distance = 0; distance < kNumGroups; ++distance) {
    for (const int group : {wanted + distance, wanted - distance}) {
      if (group < 0 || group >= kNumGroups) continue;
      const Average& pass = passes_[static_cast<size_t>(group)];
      if (pass.known()) return pass.value;
    }
  }
  return cost_ratio_ * Step(num_sequences);
}

double DraftCosts::CatchUpToken() const {
  return token_.known() ? token_.value : Pass(1) / kTokensOfAPass;
}

}  // namespace sluice
