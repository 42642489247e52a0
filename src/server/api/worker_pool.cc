#include "server/api/worker_pool.h"

#include <algorithm>
#include <utility>

namespace sluice {

WorkerPool::WorkerPool(int num_threads)
    : most_long_(static_cast<size_t>(std::max(1, num_threads - 1))) {
  try {
    for (int i = 0; i < std::max(1, num_threads); ++i) threads_.emplace_back([this] { Work(); });
  } catch (...) {
    Stop();  // a thread that was refused leaves those before it to be joined
    throw;
  }
}

WorkerPool::~WorkerPool() {
  Stop();
}

void WorkerPool::Submit(std::function<void()> task, bool is_long) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    (is_long ? long_ : short_).push_back({++num_tasks_, std::move(task)});
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

std::deque<WorkerPool::Task>* WorkerPool::Next() {
  const bool may_be_long = !long_.empty() && num_long_ < most_long_;
  if (!may_be_long) return short_.empty() ? nullptr : &short_;
  return short_.empty() || long_.front().number < short_.front().number ? &long_ : &short_;
}

void WorkerPool::Work() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && Next() == nullptr) wake_.Wait(lock);
    if (stopping_) return;
    std::deque<Task>* const queue = Next();
    const bool is_long = queue == &long_;
    std::function<void()> task = std::move(queue->front().work);
    queue->pop_front();
    if (is_long) ++num_long_;
    lock.Unlock();
    task();
    task = nullptr;  // What it holds goes without the lock.
    lock.Lock();
    if (is_long) {
      --num_long_;
      if (!long_.empty()) wake_.NotifyOne();
    }
  }
}

}  // namespace sluice
