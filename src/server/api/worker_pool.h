// Threads for the work of requests that must not hold up an I/O thread: parsing, rendering,
// encoding, detokenizing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

// Runs tasks in order of arrival on a few threads. Long tasks use at most all threads but one, so
// that short ones (a step of a stream, a short prompt) do not wait for them. The number of tasks is
// bounded by the callers: a request has at most one in the queue, and the number of requests is
// limited. Thread safety: Submit may be called from any thread, also from a task.
class WorkerPool {
 public:
  // Two threads are the fewest with which short tasks need not wait for long ones.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Dropped without being run once Stop() has been called. `is_long`: it may take long.
  void Submit(std::function<void()> task, bool is_long = false);
  // Runs what is in progress to its end, drops the rest and joins the threads.
  void Stop();

 private:
  struct Task {
    uint64_t number = 0;  // in order of arrival
    std::function<void()> work;
  };

  void Work();
  // The queue of the task to be run next, or null.   REQUIRES: mutex_ is held.
  std::deque<Task>* Next();

  const size_t most_long_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Task> short_, long_;
  uint64_t num_tasks_ = 0;
  size_t num_long_ = 0;  // that run now
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
