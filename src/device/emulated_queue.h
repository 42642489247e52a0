// The work of an emulated stream. Nothing runs when it is enqueued: it runs, in order, when
// somebody waits for it. Whoever forgets to wait, or changes memory that a copy has yet to read,
// sees wrong results in every test instead of once in a while on a device.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace sluice {

// Thread safety: one thread at a time.
class EmulatedQueue {
 public:
  void Enqueue(std::function<void()> work) {
    work_.push_back(std::move(work));
    ++num_enqueued_;
  }
  // Runs until so many pieces of work are done since the beginning.
  void RunUntil(int64_t count) {
    while (num_done_ < count && !work_.empty()) {
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      next();
      ++num_done_;
    }
  }
  void RunAll() { RunUntil(num_enqueued_); }
  int64_t num_enqueued() const { return num_enqueued_; }
  int64_t num_done() const { return num_done_; }

 private:
  std::deque<std::function<void()>> work_;
  int64_t num_enqueued_ = 0;
  int64_t num_done_ = 0;
};

}  // namespace sluice
