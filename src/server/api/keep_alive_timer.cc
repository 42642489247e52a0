#include "server/api/keep_alive_timer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/firewall.h"
#include "base/mutex.h"

namespace sluice {

KeepAliveTimer::KeepAliveTimer(double interval_seconds, std::shared_ptr<ActiveRequests> active)
    : active_(std::move(active)) {
  if (interval_seconds > 0)
    thread_ = StartThread("keep-alive", [this, interval_seconds] { Run(interval_seconds); });
}

void KeepAliveTimer::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void KeepAliveTimer::Run(double interval_seconds) {
  using Duration = std::chrono::steady_clock::duration;
  const auto interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(interval_seconds));
  MutexLock lock(mutex_);
  while (!stopping_) {
    wake_.WaitUntil(lock, std::chrono::steady_clock::now() +
                              std::max<Duration>(interval / 8, std::chrono::milliseconds(20)));
    lock.Unlock();
    RunGuarded("server", "to send what keeps streams alive", [&] { active_->KeepAlive(interval); });
    lock.Lock();
  }
}

}  // namespace sluice
