// Follows one sequence's constraint within the time that steps and its request have for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "constraints/constraint.h"

namespace sluice {

// Processor time that all matchers together may take of a step. Thread safety: Renew by one thread,
// between steps; the others by any.
class StepBudget {
 public:
  // Wall time that a step may be longer for matchers, on the threads that share them.
  static constexpr double kSeconds = 0.01;

  void Renew(int num_threads) { left_.store(kSeconds * num_threads); }
  double left() const { return left_.load(std::memory_order_relaxed); }
  void Spend(double seconds) { left_.fetch_sub(seconds, std::memory_order_relaxed); }

 private:
  std::atomic<double> left_{kSeconds};
};

// Processor time that the sequences of a request may take over its life. Thread safety: any.
class RequestBudget {
 public:
  static constexpr double kSeconds = 5;
  static constexpr double kSecondsPerToken = 0.001;

  bool is_spent() const {
    return spent_.load(std::memory_order_relaxed) >
           kSeconds +
               kSecondsPerToken * static_cast<double>(tokens_.load(std::memory_order_relaxed));
  }
  void Spend(double seconds) { spent_.fetch_add(seconds, std::memory_order_relaxed); }
  void AddToken() { tokens_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<double> spent_{0};
  std::atomic<int64_t> tokens_{0};
};

// Work that fits a step is done in it; a matcher that takes longer is stopped, and handed to a
// MatcherQueue (matcher_queue.h), which begins it again from the output and leaves the next mask
// here. What is allowed does not depend on where it was found out.
// Thread safety: one thread at a time; while is_away(), the queue's alone, but for what says
// otherwise.
class SequenceMatcher {
 public:
  enum class Answer {
    kYes,
    kNo,    // forbidden, or it cannot be followed: error()
    kLate,  // not within this step: MatcherQueue::Submit, and ask again when it is back
  };
  // The longest that one call may take of a step.
  static constexpr double kCallSeconds = 0.004;

  // `request` may be null: no limit over a life.
  explicit SequenceMatcher(std::unique_ptr<TokenMatcher> matcher,
                           std::shared_ptr<RequestBudget> request = nullptr);

  // Calls in steps are charged to `step`, which outlives them; without one they have no such limit.
  void UseStepBudget(StepBudget* step) { step_ = step; }

  // Takes the part of `output` that it has not seen. After kNo an error is set.
  Answer CatchUp(std::span<const int32_t> output);
  // Takes one more token. kNo leaves it unchanged.
  Answer Advance(int32_t token);
  // REQUIRES: !is_finished(). `mask`: MaskWords of the vocabulary.
  Answer FillMask(std::span<uint32_t> mask);
  // The next mask is here already: FillMask copies it.
  bool has_mask() const { return has_mask_; }

  // An end token was taken. False while it is away. Thread safety: any.
  bool is_finished() const { return !is_away() && matcher_->is_finished(); }
  // Thread safety: any.
  bool is_away() const { return is_away_.load(std::memory_order_acquire); }
  // The last call that was allowed as much as kCallSeconds was not enough: the next is best made
  // by the queue at once.
  bool is_slow() const { return is_slow_; }
  // Why it cannot be followed; "" if it can.
  std::string_view error() const { return error_; }
  // Processor time since the last call.
  double TakeUncharged();

  // The queue's part. Away() hands it over; WorkOnce makes one call of the matcher towards the mask
  // after `output`, and returns whether that is done; Return() hands it back.
  void Away() { is_away_.store(true, std::memory_order_release); }
  bool WorkOnce(std::span<const int32_t> output, size_t mask_words);
  void Fail(std::string_view error) { error_ = error; }
  void Return() { is_away_.store(false, std::memory_order_release); }

 private:
  template <typename Call>
  Answer InStep(const Call& call);
  // Makes a call of at most `seconds`, and accounts for it.
  template <typename Call>
  bool Timed(double seconds, const Call& call);

  const std::unique_ptr<TokenMatcher> matcher_;
  const std::shared_ptr<RequestBudget> request_;
  StepBudget* step_ = nullptr;
  size_t num_matched_ = 0;  // output tokens that it has taken
  std::vector<uint32_t> mask_;
  bool has_mask_ = false;  // after the tokens that it has taken
  bool is_slow_ = false;
  std::string_view error_;
  double uncharged_ = 0;
  double last_seconds_ = 0;  // of the last call
  std::atomic<bool> is_away_{false};
};

}  // namespace sluice
