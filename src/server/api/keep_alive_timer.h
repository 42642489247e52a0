// Sends keep-alive comments on idle streams (--sse-keep-alive-interval).
#pragma once

#include <memory>
#include <thread>

#include "base/mutex.h"
#include "server/api/common/active_requests.h"

namespace sluice {

// A thread that calls KeepAlive() of all active requests several times per interval.
class KeepAliveTimer {
 public:
  // With 0 seconds, does nothing.
  KeepAliveTimer(double interval_seconds, std::shared_ptr<ActiveRequests> active);
  ~KeepAliveTimer() { Stop(); }
  KeepAliveTimer(const KeepAliveTimer&) = delete;
  KeepAliveTimer& operator=(const KeepAliveTimer&) = delete;

  void Stop();

 private:
  void Run(double interval_seconds);

  const std::shared_ptr<ActiveRequests> active_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
