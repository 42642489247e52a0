#include "constraints/sequence_matcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::string_view kCannotFollow =
    "the constraint cannot be applied any further: the answer violates it, or a token takes more "
    "time or memory than a constraint may; make it less ambiguous";
constexpr std::string_view kSpent =
    "the constraint is too slow: the request has used the processor time that constraints may take "
    "(5 s, and 1 ms for each token); make it less ambiguous, or request fewer sequences";
// If a call in the queue takes less than this time, the next call may fit into a step.
constexpr double kQuickSeconds = SequenceMatcher::kCallSeconds / 2;

}  // namespace

SequenceMatcher::SequenceMatcher(std::unique_ptr<TokenMatcher> matcher,
                                 std::shared_ptr<RequestBudget> request)
    : matcher_(std::move(matcher)), request_(std::move(request)) {
  CHECK(matcher_ != nullptr);
}

double SequenceMatcher::TakeUncharged() {
  return std::exchange(uncharged_, 0);
}

template <typename Call>
bool SequenceMatcher::Timed(double seconds, const Call& call) {
  matcher_->LimitCalls(seconds);
  const double before = matcher_->cpu_seconds();
  // The outer matcher may continue after the wrapped one was stopped. The result is meaningless in
  // this case.
  const bool result = call() && !matcher_->is_stopped();
  last_seconds_ = matcher_->cpu_seconds() - before;
  uncharged_ += last_seconds_;
  if (request_ != nullptr) request_->Spend(last_seconds_);
  return result;
}

template <typename Call>
SequenceMatcher::Answer SequenceMatcher::InStep(const Call& call) {
  if (is_away()) return Answer::kLate;
  if (!error_.empty()) return Answer::kNo;
  if (matcher_->is_stopped()) return Answer::kLate;
  if (request_ != nullptr && request_->is_spent()) {
    error_ = kSpent;
    return Answer::kNo;
  }
  double most = std::numeric_limits<double>::infinity();
  if (step_ != nullptr) {
    most = std::min(step_->left(), kCallSeconds);
    if (most <= 0) return Answer::kLate;
  }
  const bool result = Timed(most, call);
  if (step_ != nullptr) step_->Spend(last_seconds_);
  if (result) return Answer::kYes;
  if (!matcher_->is_stopped()) return Answer::kNo;
  if (step_ == nullptr) {
    error_ = kCannotFollow;
    return Answer::kNo;
  }
  is_slow_ = most >= kCallSeconds;
  return Answer::kLate;
}

SequenceMatcher::Answer SequenceMatcher::Advance(int32_t token) {
  const Answer answer = InStep([&] { return matcher_->Advance(token); });
  if (answer != Answer::kYes) return answer;
  ++num_matched_;
  has_mask_ = false;
  if (request_ != nullptr) request_->AddToken();
  return answer;
}

SequenceMatcher::Answer SequenceMatcher::CatchUp(std::span<const int32_t> output) {
  if (is_away() || matcher_->is_stopped()) return Answer::kLate;
  if (!error_.empty()) return Answer::kNo;
  while (!matcher_->is_finished() && num_matched_ < output.size()) {
    const Answer answer = Advance(output[num_matched_]);
    if (answer == Answer::kNo && error_.empty()) error_ = kCannotFollow;
    if (answer != Answer::kYes) return answer;
  }
  return Answer::kYes;
}

SequenceMatcher::Answer SequenceMatcher::FillMask(std::span<uint32_t> mask) {
  if (!is_away() && has_mask_) {
    std::ranges::copy(mask_, mask.begin());
    return Answer::kYes;
  }
  const Answer answer = InStep([&] { return matcher_->FillMask(mask); });
  if (answer == Answer::kNo && error_.empty()) error_ = kCannotFollow;
  return answer;
}

bool SequenceMatcher::WorkOnce(std::span<const int32_t> output, size_t mask_words) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();  // no limit besides the
                                                                        // matcher's own
  if (!error_.empty()) return true;
  if (request_ != nullptr && request_->is_spent()) {
    error_ = kSpent;
    return true;
  }
  if (matcher_->is_stopped()) {
    matcher_->Reset();
    num_matched_ = 0;
    has_mask_ = false;
  }
  if (matcher_->is_finished()) return true;
  if (num_matched_ < output.size()) {
    if (!Timed(kNoLimit, [&] { return matcher_->Advance(output[num_matched_]); })) {
      error_ = kCannotFollow;
      return true;
    }
    ++num_matched_;
    has_mask_ = false;
    if (request_ != nullptr) request_->AddToken();
    return false;
  }
  mask_.resize(mask_words);
  has_mask_ = Timed(kNoLimit, [&] { return matcher_->FillMask(mask_); });
  if (!has_mask_) error_ = kCannotFollow;
  is_slow_ = last_seconds_ > kQuickSeconds;
  return true;
}

}  // namespace sluice
