#include "server/api/keep_alive_timer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice {

KeepAliveTimer::KeepAliveTimer(double interval_seconds, std::shared_ptr<ActiveRequests> active)
    : active_(std::move(active)) {
  if (interval_seconds > 0)
    thread_ = std::thread([this, interval_seconds] { Run(interval_seconds); });
}

void KeepAliveTimer::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void KeepAliveTimer::Run(double interval_seconds) {
  using Duration = std::chrono::steady_clock::duration;
  const auto interval =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(interval_seconds));
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, std::max<Duration>(interval / 8, std::chrono::milliseconds(20)));
    lock.unlock();
    active_->KeepAlive(interval);
    lock.lock();
  }
}

}  // namespace sluice
