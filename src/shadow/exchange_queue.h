// A queue of answers that wait to be compared, limited in number and bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "shadow/comparer.h"

namespace sluice::shadow {

// Thread safety: all methods may be called from any thread.
class ExchangeQueue {
 public:
  ExchangeQueue(size_t max_exchanges, uint64_t max_bytes)
      : max_exchanges_(max_exchanges), max_bytes_(max_bytes) {}

  // Never waits for the threads that compare. Returns false if the queue is full or closed.
  bool Offer(Exchange exchange) {
    const uint64_t bytes = exchange.request.size() + exchange.response.size();
    {
      const MutexLock lock(mutex_);
      if (is_closed_ || waiting_.size() >= max_exchanges_ || bytes_ + bytes > max_bytes_)
        return false;
      bytes_ += bytes;
      waiting_.push_back(std::move(exchange));
    }
    changed_.NotifyOne();
    return true;
  }

  // Waits for an exchange and removes it; nullopt once the queue is closed and empty.
  std::optional<Exchange> Take() {
    MutexLock lock(mutex_);
    while (waiting_.empty() && !is_closed_) changed_.Wait(lock);
    if (waiting_.empty()) return std::nullopt;
    Exchange exchange = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_ -= exchange.request.size() + exchange.response.size();
    return exchange;
  }

  // Closes the queue: Offer refuses further exchanges. Returns the number of exchanges that are
  // left.
  size_t Close() {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.NotifyAll();
    return waiting_.size();
  }

  // Removes all waiting exchanges and returns their number.
  size_t Clear() {
    const MutexLock lock(mutex_);
    bytes_ = 0;
    return std::exchange(waiting_, {}).size();
  }

 private:
  const size_t max_exchanges_;
  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Exchange> waiting_ GUARDED_BY(mutex_);
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  bool is_closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::shadow
