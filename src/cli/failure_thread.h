// What a process does when something that it cannot go on without has failed.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <thread>

namespace sluice::cli {

// Calls `act` once, on a thread of its own, after the first Report. The thread exists from the
// start: a system that refuses new threads must not hide a failure.
//
// Thread safety: Report by any thread, until the destructor begins. Ownership: `act` uses nothing
// after the destructor, which waits for it where there was a report.
class FailureThread {
 public:
  // Throws std::system_error where the system refuses the thread.
  explicit FailureThread(std::function<void()> act);
  ~FailureThread();
  FailureThread(const FailureThread&) = delete;
  FailureThread& operator=(const FailureThread&) = delete;

  void Report() { Tell(/*has_failed=*/true); }

 private:
  void Tell(bool has_failed);

  std::atomic<bool> is_told_{false};
  std::promise<bool> has_failed_;
  std::thread thread_;
};

}  // namespace sluice::cli
