#include "constraints/deferred_constraint.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

class DeferredMatcher final : public TokenMatcher {
 public:
  DeferredMatcher(std::unique_ptr<TokenMatcher> matcher,
                  std::shared_ptr<const ReasoningMarks> marks)
      : matcher_(std::move(matcher)), marks_(std::move(marks)) {
    Reset();
  }

  bool Advance(int32_t token) override {
    if (stage_ == Stage::kStart) {
      if (!std::ranges::count(marks_->begin, token)) {
        if (!matcher_->Advance(token)) return false;
        stage_ = Stage::kConstrained;
        num_constrained_ = 1;
        return true;
      }
      stage_ = Stage::kThought;
      thought_.push_back(token);
      return true;
    }
    if (stage_ == Stage::kThought) {
      thought_.push_back(token);
      if (EndsThought(token)) stage_ = Stage::kConstrained;
      return true;
    }
    if (!matcher_->Advance(token)) return false;
    ++num_constrained_;
    return true;
  }

  bool FillMask(std::span<uint32_t> mask) override {
    if (stage_ == Stage::kThought) {
      std::ranges::fill(mask, ~uint32_t{0});
      return true;
    }
    if (!matcher_->FillMask(mask)) return false;
    if (stage_ == Stage::kStart) {
      for (const int32_t token : marks_->begin)
        mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    return true;
  }

  void RollBack(int num_tokens) override {
    const int constrained = std::min(num_tokens, num_constrained_);
    matcher_->RollBack(constrained);
    num_constrained_ -= constrained;
    if (num_tokens == constrained) {
      if (num_constrained_ == 0 && thought_.empty() && !marks_->begins_inside)
        stage_ = Stage::kStart;
      return;
    }
    std::vector<int32_t> kept = std::move(thought_);
    kept.resize(kept.size() - static_cast<size_t>(num_tokens - constrained));
    Reset();
    for (const int32_t token : kept) Advance(token);
  }

  void Reset() override {
    matcher_->Reset();
    stage_ = marks_->begins_inside ? Stage::kThought : Stage::kStart;
    thought_.clear();
    tail_.clear();
    num_constrained_ = 0;
  }

  bool is_finished() const override {
    return stage_ == Stage::kConstrained && matcher_->is_finished();
  }

 private:
  enum class Stage { kStart, kThought, kConstrained };

  bool EndsThought(int32_t token) {
    tail_ += marks_->bytes_of(token);
    size_t longest = 0;
    for (const std::string& end : marks_->end) {
      if (tail_.find(end) != std::string::npos) return true;
      longest = std::max(longest, end.size());
    }
    // No more than may still become a mark.
    if (tail_.size() >= longest) tail_.erase(0, tail_.size() - longest + 1);
    return false;
  }

  const std::unique_ptr<TokenMatcher> matcher_;
  const std::shared_ptr<const ReasoningMarks> marks_;
  Stage stage_ = Stage::kStart;
  std::vector<int32_t> thought_;  // its tokens, to roll back into it
  std::string tail_;              // the end of its text
  int num_constrained_ = 0;
};

class DeferredConstraint final : public Constraint {
 public:
  DeferredConstraint(std::shared_ptr<const Constraint> constraint, ReasoningMarks marks)
      : constraint_(std::move(constraint)),
        marks_(std::make_shared<const ReasoningMarks>(std::move(marks))) {}

  std::unique_ptr<TokenMatcher> NewMatcher() const override {
    return std::make_unique<DeferredMatcher>(constraint_->NewMatcher(), marks_);
  }
  size_t bytes() const override { return constraint_->bytes(); }

 private:
  const std::shared_ptr<const Constraint> constraint_;
  const std::shared_ptr<const ReasoningMarks> marks_;
};

}  // namespace

std::shared_ptr<const Constraint> AfterReasoning(std::shared_ptr<const Constraint> constraint,
                                                 ReasoningMarks marks) {
  return std::make_shared<const DeferredConstraint>(std::move(constraint), std::move(marks));
}

}  // namespace sluice
