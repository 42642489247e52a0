// Threads for the work of requests that must not hold up an I/O thread: parsing, rendering,
// encoding, detokenizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

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
  // The queue of the task to be run next, or null.
  std::deque<Task>* Next() REQUIRES(mutex_);

  const size_t most_long_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> short_ GUARDED_BY(mutex_), long_ GUARDED_BY(mutex_);
  uint64_t num_tasks_ GUARDED_BY(mutex_) = 0;
  size_t num_long_ GUARDED_BY(mutex_) = 0;  // long tasks in progress
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
