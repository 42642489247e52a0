// The work of an emulated stream. By default, work is deferred: it runs, in order, when a caller
// waits for the stream. So every test detects a missing wait, and a write to memory that a pending
// copy has not read yet; a real device would rarely show these faults. With `runs_at_once`, work
// runs when it is enqueued. This exposes memory that is written too late, after the copy that reads
// it was enqueued.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

namespace sluice {

// Thread safety: one thread at a time.
class EmulatedQueue {
 public:
  EmulatedQueue() = default;
  // `launch_fault` outlives the queue: if it is not 0, the next launch fails with that code, is not
  // enqueued, and resets it to 0. `runs_at_once`: whether work runs before Enqueue returns, which
  // is the earliest that a device may run it.
  explicit EmulatedQueue(std::atomic<int>* launch_fault, bool runs_at_once = false)
      : launch_fault_(launch_fault), runs_at_once_(runs_at_once) {}

  void Enqueue(std::function<void()> work) {
    EnqueueWaiting([work = std::move(work)] {
      work();
      return true;
    });
  }
  // Enqueues work that may have to wait: `work` returns false if it cannot proceed yet, and is
  // called again.
  void EnqueueWaiting(std::function<bool()> work) {
    if (recorded_) return recorded_->push_back(std::move(work));
    work_.push_back(std::move(work));
    ++num_enqueued_;
    if (runs_at_once_) TryRunAll();
  }
  // Runs work, and waits if necessary, until `count` items of work are done in total.
  void RunUntil(int64_t count) {
    constexpr std::chrono::microseconds kPause{50};
    while (!TryRunUntil(count)) std::this_thread::sleep_for(kPause);
  }
  // Run the work that can run now. Return whether all work, or the first `count` items, are done.
  bool TryRunAll() { return TryRunUntil(num_enqueued_); }
  bool TryRunUntil(int64_t count) {
    while (num_done_ < count && !work_.empty()) {
      std::function<bool()> next = std::move(work_.front());
      work_.pop_front();
      if (!next()) {
        work_.push_front(std::move(next));
        return false;
      }
      ++num_done_;
    }
    return true;
  }
  void RunAll() { RunUntil(num_enqueued_); }
  // Counts the remaining work as done without running it, as if the device were lost.
  void Drop() {
    work_.clear();
    num_done_ = num_enqueued_;
  }
  // Begins recording: until EndRecording, work is recorded and not enqueued.
  using Recorded = std::vector<std::function<bool()>>;
  void BeginRecording() { recorded_.emplace(); }
  Recorded EndRecording() {
    Recorded recorded = std::move(*recorded_);
    recorded_.reset();
    return recorded;
  }
  bool is_recording() const { return recorded_.has_value(); }
  int TakeLaunchFault() { return launch_fault_ == nullptr ? 0 : launch_fault_->exchange(0); }
  int64_t num_enqueued() const { return num_enqueued_; }
  int64_t num_done() const { return num_done_; }

 private:
  std::deque<std::function<bool()>> work_;
  std::optional<Recorded> recorded_;
  int64_t num_enqueued_ = 0;
  int64_t num_done_ = 0;
  std::atomic<int>* launch_fault_ = nullptr;
  bool runs_at_once_ = false;
};

}  // namespace sluice
