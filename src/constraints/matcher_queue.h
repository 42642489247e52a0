// Does the work of matchers that does not fit a step, on threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/stack_thread.h"
#include "constraints/sequence_matcher.h"

namespace sluice {

// The client whose matchers have taken least since the queue was empty comes first, for
// kTurnSeconds at a time, so that none has to wait for another's. The threads yield the processor
// to those that compute steps. Thread safety: one thread may call.
class MatcherQueue {
 public:
  static constexpr int kNumThreads = 2;
  static constexpr double kTurnSeconds = 0.02;

  // Starts the threads; where the system refuses them, fewer do the work, or every matcher fails.
  explicit MatcherQueue(size_t mask_words, int num_threads = kNumThreads);
  // Waits for the calls that are being made; what waits is dropped.
  ~MatcherQueue();
  MatcherQueue(const MatcherQueue&) = delete;
  MatcherQueue& operator=(const MatcherQueue&) = delete;

  // The matcher is away until the mask after `output`, the sequence's tokens so far, is there, or
  // an error. One whose sequence is gone (nobody else owns it) is dropped. REQUIRES: it is here.
  void Submit(const std::shared_ptr<SequenceMatcher>& matcher, std::span<const int32_t> output,
              uint64_t client);
  // Waits until a matcher has come back since the last call, at most for `seconds`.
  void WaitForOne(double seconds);

 private:
  struct Job {
    std::shared_ptr<SequenceMatcher> matcher;
    std::vector<int32_t> output;
    uint64_t client = 0;
  };
  using Jobs = std::list<Job>;

  void Work();
  // Works on it for a turn. Whether it is done.
  bool Turn(Job& job, double& seconds) const;

  const size_t mask_words_;
  Mutex mutex_;
  CondVar wake_;  // the threads
  CondVar back_;  // who waits for a matcher
  Jobs waiting_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, double> used_ GUARDED_BY(mutex_);  // seconds, by client
  int num_working_ GUARDED_BY(mutex_) = 0;
  bool any_back_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<StackThread> threads_ GUARDED_BY(mutex_);
};

}  // namespace sluice
