#include "cli/drain_delay.h"

#include <utility>

#include "base/log.h"

namespace sluice::cli {

void DrainDelay::Run(const std::function<void()>& leave, const std::function<void()>& close) {
  using Clock = std::chrono::steady_clock;
  {
    const MutexLock lock(mutex_);
    if (seconds_ == 0 || is_over_) return;
    is_running_ = true;
  }
  LOG_INFO("serve",
           "drain delay: /ready returns 503, requests are served for another {} s; a second signal "
           "skips the delay",
           seconds_);
  const auto wait = [this](Clock::duration time) {
    const auto end = Clock::now() + time;
    MutexLock lock(mutex_);
    while (!is_over_ && Clock::now() < end) wake_.WaitUntil(lock, end);
  };
  leave();
  wait(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_)));
  close();
  wait(last_);
  const MutexLock lock(mutex_);
  is_running_ = false;
}

bool DrainDelay::Skip() {
  {
    const MutexLock lock(mutex_);
    if (!is_running_ || std::exchange(is_over_, true)) return false;
  }
  wake_.NotifyAll();
  return true;
}

void DrainDelay::End() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  wake_.NotifyAll();
}

}  // namespace sluice::cli
