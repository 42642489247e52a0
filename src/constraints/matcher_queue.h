// Runs matcher calls that take too long for a step on its own threads.
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

// Clients take turns of kTurnSeconds. The next turn goes to the client whose matchers have used the
// least time since the queue was last empty. So no client waits long for the matchers of another
// client. The threads have a lower priority than those that compute steps. Thread safety: one
// thread may call.
class MatcherQueue {
 public:
  static constexpr int kNumThreads = 2;
  static constexpr double kTurnSeconds = 0.02;

  // Starts the threads. If the system refuses some threads, the other threads do the work; without
  // any thread, every matcher fails.
  explicit MatcherQueue(size_t mask_words, int num_threads = kNumThreads);
  // Waits for running calls. Drops waiting matchers.
  ~MatcherQueue();
  MatcherQueue(const MatcherQueue&) = delete;
  MatcherQueue& operator=(const MatcherQueue&) = delete;

  // Hands the matcher to the queue. The matcher is away until it has the mask after `output` (the
  // sequence's tokens so far) or an error. A matcher without another owner is dropped. REQUIRES:
  // !matcher->is_away().
  void Submit(const std::shared_ptr<SequenceMatcher>& matcher, std::span<const int32_t> output,
              uint64_t client);
  // Waits, for at most `seconds`, until a matcher has come back since the last call.
  void WaitForOne(double seconds);

 private:
  struct Job {
    std::shared_ptr<SequenceMatcher> matcher;
    std::vector<int32_t> output;
    uint64_t client = 0;
  };
  using Jobs = std::list<Job>;

  void Work();
  // Works on the job for one turn of `seconds`. Returns whether the job is done.
  bool Turn(Job& job, double& seconds) const;

  const size_t mask_words_;
  Mutex mutex_;
  CondVar wake_;  // wakes the threads
  CondVar back_;  // wakes WaitForOne
  Jobs waiting_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, double> used_ GUARDED_BY(mutex_);  // seconds used by each client
  int num_working_ GUARDED_BY(mutex_) = 0;
  bool any_back_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<StackThread> threads_ GUARDED_BY(mutex_);
};

}  // namespace sluice
