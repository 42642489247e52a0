// The end of a server behind proxies, with --drain-delay.
#pragma once

#include <chrono>
#include <functional>

#include "base/mutex.h"

namespace sluice::cli {

// Before a server drains, proxies get time to send requests elsewhere: for `seconds` requests are
// still served, though /ready answers 503. Then new connections are refused, which proxies notice
// at once, and requests on their way on open connections are served for another second.
//
// Thread safety: all methods may be called from any thread; Run by one thread at a time.
class DrainDelay {
 public:
  // `last`: the time for requests on their way.
  explicit DrainDelay(double seconds, std::chrono::milliseconds last = std::chrono::seconds(1))
      : seconds_(seconds), last_(last) {}

  double seconds() const { return seconds_; }

  // Runs the delay. `leave` makes /ready answer 503, `close` refuses new connections; both are
  // called on this thread. Does nothing if there is no delay, or it was skipped before.
  void Run(const std::function<void()>& leave, const std::function<void()>& close);
  // Handles a second signal: Run returns soon, after `close`. Returns false if no delay runs, or it
  // was skipped already.
  bool Skip();
  // The server has ended: Run returns soon.
  void End();

 private:
  const double seconds_;
  const std::chrono::milliseconds last_;
  Mutex mutex_;
  CondVar wake_;
  bool is_running_ GUARDED_BY(mutex_) = false;
  bool is_over_ GUARDED_BY(mutex_) = false;  // skipped or ended
};

}  // namespace sluice::cli
