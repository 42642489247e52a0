// Follows one sequence's constraint within the time limits of steps and of its request.
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

// Limits the processor time that all matchers together use in a step. Thread safety: one thread
// calls Renew, between steps; any thread may call the other methods.
class StepBudget {
 public:
  // Maximum wall time that matchers may add to a step, spread over the threads that run them.
  static constexpr double kSeconds = 0.01;

  void Renew(int num_threads) { left_.store(kSeconds * num_threads); }
  double left() const { return left_.load(std::memory_order_relaxed); }
  void Spend(double seconds) { left_.fetch_sub(seconds, std::memory_order_relaxed); }

 private:
  std::atomic<double> left_{kSeconds};
};

// Limits the processor time that all sequences of a request use in total. Thread safety: any
// thread.
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

// Does work within the step if it fits. A matcher that takes longer is stopped and handed to a
// MatcherQueue (matcher_queue.h). The queue starts it again from the output and stores the next
// mask in this object. The allowed tokens do not depend on where they were computed. Thread safety:
// one thread at a time; while is_away(), only the queue's thread, except for methods that state
// otherwise.
class SequenceMatcher {
 public:
  enum class Answer {
    kYes,
    kNo,    // forbidden, or error(): the constraint cannot be followed
    kLate,  // did not fit into this step: call MatcherQueue::Submit, then repeat the call when the
            // matcher is back
  };
  // Maximum time of one call within a step.
  static constexpr double kCallSeconds = 0.004;

  // `request` may be null; there is then no limit per request.
  explicit SequenceMatcher(std::unique_ptr<TokenMatcher> matcher,
                           std::shared_ptr<RequestBudget> request = nullptr);

  // Charges calls within steps to `step`, which must outlive this. null: no limit per step.
  void UseStepBudget(StepBudget* step) { step_ = step; }

  // Advances by the tokens of `output` that the matcher has not accepted yet. On kNo, error() is
  // set.
  Answer CatchUp(std::span<const int32_t> output);
  // Advances by one token. kNo leaves the state unchanged.
  Answer Advance(int32_t token);
  // REQUIRES: !is_finished(). `mask`: MaskWords of the vocabulary.
  Answer FillMask(std::span<uint32_t> mask);
  // Whether the next mask is already computed, so that FillMask only copies it.
  bool has_mask() const { return has_mask_; }

  // Whether an end token was accepted. False while the queue has the matcher. Thread safety: any
  // thread.
  bool is_finished() const { return !is_away() && matcher_->is_finished(); }
  // Whether the queue has the matcher. Thread safety: any thread.
  bool is_away() const { return is_away_.load(std::memory_order_acquire); }
  // Whether the last call took longer than kCallSeconds. If so, submit the next call to the queue
  // directly.
  bool is_slow() const { return is_slow_; }
  // The reason why the constraint cannot be followed; "" if it can.
  std::string_view error() const { return error_; }
  // Returns the processor time used since the last TakeUncharged().
  double TakeUncharged();

  // The queue calls these. Away() marks the matcher as owned by the queue. WorkOnce() makes one
  // call of the matcher that brings it closer to the mask after `output`, and returns whether that
  // mask is done. Return() gives the matcher back to its owner.
  void Away() { is_away_.store(true, std::memory_order_release); }
  bool WorkOnce(std::span<const int32_t> output, size_t mask_words);
  void Fail(std::string_view error) { error_ = error; }
  void Return() { is_away_.store(false, std::memory_order_release); }

 private:
  template <typename Call>
  Answer InStep(const Call& call);
  // Makes a call with a limit of `seconds` and accounts for its time.
  template <typename Call>
  bool Timed(double seconds, const Call& call);

  const std::unique_ptr<TokenMatcher> matcher_;
  const std::shared_ptr<RequestBudget> request_;
  StepBudget* step_ = nullptr;
  size_t num_matched_ = 0;  // number of output tokens accepted
  std::vector<uint32_t> mask_;
  bool has_mask_ = false;  // whether mask_ is the mask after the accepted tokens
  bool is_slow_ = false;
  std::string_view error_;
  double uncharged_ = 0;
  double last_seconds_ = 0;  // duration of the last call
  std::atomic<bool> is_away_{false};
};

}  // namespace sluice
