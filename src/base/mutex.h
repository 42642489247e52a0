// Mutexes that the compiler checks. Clang's -Wthread-safety (tools/check_locks.sh) reports every
// access to a GUARDED_BY member without its mutex. These wrappers exist because the check covers
// only annotated types, and libstdc++'s std::mutex is not annotated. With other compilers they are
// plain std::mutex and std::condition_variable.
//
//   Mutex mutex_;
//   std::deque<Task> queue_ GUARDED_BY(mutex_);
//   void Take() { MutexLock lock(mutex_); while (queue_.empty()) wake_.Wait(lock); ... }
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SLUICE_LOCK_ATTRIBUTE(x) __attribute__((x))
#else
#define SLUICE_LOCK_ATTRIBUTE(x)
#endif
// On a member: it is read and written only while `mutex` is held.
#define GUARDED_BY(mutex) SLUICE_LOCK_ATTRIBUTE(guarded_by(mutex))
// On a function: its caller holds the mutex.
#define REQUIRES(mutex) SLUICE_LOCK_ATTRIBUTE(requires_capability(mutex))

namespace sluice {

class SLUICE_LOCK_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex during its lifetime, except between Unlock and Lock.
class SLUICE_LOCK_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SLUICE_LOCK_ATTRIBUTE(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() SLUICE_LOCK_ATTRIBUTE(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() SLUICE_LOCK_ATTRIBUTE(release_capability()) { lock_.unlock(); }
  void Lock() SLUICE_LOCK_ATTRIBUTE(acquire_capability()) { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// Condition variable. Callers wait in their own loop, where the analysis sees that the lock is
// held: `while (!ready_) wake_.Wait(lock);`.
class CondVar {
 public:
  void Wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  // Returns false on timeout.
  template <typename Clock, typename Duration>
  bool WaitUntil(MutexLock& lock, std::chrono::time_point<Clock, Duration> deadline) {
    return condition_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sluice
