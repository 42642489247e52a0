// Threads for work on requests that takes too long for an I/O thread: parsing, rendering, encoding,
// detokenizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace sluice {

// Runs tasks on a few threads, short ones in order of arrival. Long tasks use at most half of the
// threads, but at least one. So short tasks, such as a step of a stream or a short prompt, do not
// wait for long ones. The shortest long task runs next, but every fourth time the oldest, to
// prevent starvation. Callers limit the number of tasks: a request has at most one in the queue,
// and the number of requests is limited. Thread safety: Submit may be called from any thread, also
// from a task.
class WorkerPool {
 public:
  // A task with more bytes of input is long: parsing, rendering and encoding it takes milliseconds,
  // or seconds for the largest bodies.
  static constexpr size_t kLongBytes = size_t{256} << 10;

  // With fewer than two threads, short tasks must wait for long ones.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Queues a task, or drops it after Stop(). `bytes`: size of the input, which determines how long
  // the task takes.
  void Submit(std::function<void()> task, size_t bytes = 0);
  // Finishes the running tasks, drops the others and joins the threads.
  void Stop();

 private:
  struct Task {
    uint64_t number = 0;  // order of arrival
    size_t bytes = 0;
    std::function<void()> work;
  };

  void Work();
  bool HasNext() const REQUIRES(mutex_) { return !short_.empty() || MayBeLong(); }
  bool MayBeLong() const REQUIRES(mutex_) { return !long_.empty() && num_long_ < most_long_; }
  // Takes the next task to run. REQUIRES: HasNext().
  Task TakeNext() REQUIRES(mutex_);

  const size_t most_long_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> short_ GUARDED_BY(mutex_), long_ GUARDED_BY(mutex_);  // sorted by number
  uint64_t num_tasks_ GUARDED_BY(mutex_) = 0;
  size_t num_long_ GUARDED_BY(mutex_) = 0;          // number of long tasks in progress
  uint64_t num_long_taken_ GUARDED_BY(mutex_) = 0;  // number of long tasks taken since the start
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
