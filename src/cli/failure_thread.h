// Reacts to a failure after which the process cannot continue.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <thread>

namespace sluice::cli {

// Calls `act` once, on its own thread, after the first Report. The constructor creates the thread,
// because creating one after the failure could fail, too.
//
// Thread safety: any thread may call Report until the destructor begins. Ownership: after a report,
// the destructor waits for `act` to return. So `act` does not run after the destructor.
class FailureThread {
 public:
  // Throws std::system_error if the system cannot start the thread.
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
