#include "server/api/common/worker_pool.h"

#include <algorithm>
#include <utility>

#include "base/firewall.h"

namespace sluice {
namespace {

// Every fourth long task to run is the oldest one instead of the shortest.
constexpr uint64_t kOldestEvery = 4;

}  // namespace

WorkerPool::WorkerPool(int num_threads)
    : most_long_(static_cast<size_t>(std::max(1, num_threads / 2))) {
  try {
    for (int i = 0; i < std::max(1, num_threads); ++i)
      threads_.push_back(StartThread("worker", [this] { Work(); }));
  } catch (...) {
    Stop();  // joins the threads already started if another cannot be started
    throw;
  }
}

WorkerPool::~WorkerPool() {
  Stop();
}

void WorkerPool::Submit(std::function<void()> task, size_t bytes) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    (bytes > kLongBytes ? long_ : short_).push_back({++num_tasks_, bytes, std::move(task)});
  }
  wake_.NotifyOne();
}

void WorkerPool::Stop() {
  std::deque<Task> dropped_short, dropped_long;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped_short.swap(short_);
    dropped_long.swap(long_);
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

WorkerPool::Task WorkerPool::TakeNext() {
  if (!MayBeLong() || (!short_.empty() && short_.front().number < long_.front().number)) {
    Task task = std::move(short_.front());
    short_.pop_front();
    return task;
  }
  auto next = long_.begin();
  if (++num_long_taken_ % kOldestEvery != 0) {
    next = std::min_element(long_.begin(), long_.end(),
                            [](const Task& a, const Task& b) { return a.bytes < b.bytes; });
  }
  Task task = std::move(*next);
  long_.erase(next);
  return task;
}

void WorkerPool::Work() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && !HasNext()) wake_.Wait(lock);
    if (stopping_) return;
    Task task = TakeNext();
    const bool is_long = task.bytes > kLongBytes;
    if (is_long) ++num_long_;
    lock.Unlock();
    RunGuarded("server", "a task of a request", task.work);
    task.work = nullptr;  // destroys the task's captures without holding the lock
    lock.Lock();
    if (is_long) {
      --num_long_;
      if (!long_.empty()) wake_.NotifyOne();
    }
  }
}

}  // namespace sluice
