// Threads for the work of requests that must not hold up an I/O thread: parsing, rendering,
// encoding, detokenizing.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

// Runs tasks in order of arrival on a few threads. Whoever submits bounds the number of tasks: a
// request has at most one in the queue at a time, and the number of requests is limited. Thread
// safety: Submit may be called from any thread, also from a task.
class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Dropped without being run once Stop() has been called.
  void Submit(std::function<void()> task);
  // Runs what is in progress to its end, drops the rest and joins the threads.
  void Stop();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
