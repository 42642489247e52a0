// Implements --drain-delay, for servers behind proxies.
#pragma once

#include <chrono>
#include <functional>

#include "base/mutex.h"

namespace sluice::cli {

// Gives proxies time to send requests elsewhere before the server drains. For `seconds`, /ready
// answers 503 but requests are still served. Then new connections are refused, which proxies notice
// immediately. Requests that are already being sent on open connections are served for another
// second.
//
// Thread safety: all methods may be called from any thread; Run by one thread at a time.
class DrainDelay {
 public:
  // `last`: how long the server still serves requests on open connections after it refuses new
  // connections.
  explicit DrainDelay(double seconds, std::chrono::milliseconds last = std::chrono::seconds(1))
      : seconds_(seconds), last_(last) {}

  double seconds() const { return seconds_; }

  // Runs the delay. `leave` makes /ready answer 503; `close` refuses new connections. Both are
  // called on this thread. Does nothing if there is no delay, or if it was skipped before.
  void Run(const std::function<void()>& leave, const std::function<void()>& close);
  // Handles a second signal: makes Run call `close` and return soon. Returns false if no delay
  // runs, or if it was skipped already.
  bool Skip();
  // Call when the server has ended: makes Run return soon.
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
