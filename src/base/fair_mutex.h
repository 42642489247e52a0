// A mutex that threads acquire in the order in which they began to wait.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace sluice {

// Unlock passes the mutex to the thread that has waited longest. With a plain Mutex, a thread that
// unlocks and locks again in a loop may starve the others. Clang's thread-safety analysis covers it
// like a Mutex.
class SLUICE_LOCK_ATTRIBUTE(capability("mutex")) FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  // Number of threads that are waiting for the mutex.
  int64_t num_waiting() const {
    const MutexLock lock(mutex_);
    return next_ - current_ - (next_ > current_ ? 1 : 0);
  }

 private:
  friend class FairMutexLock;

  void Lock() {
    MutexLock lock(mutex_);
    const int64_t number = next_++;
    while (number != current_) changed_.Wait(lock);
  }
  void Unlock() {
    {
      const MutexLock lock(mutex_);
      ++current_;
    }
    changed_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t next_ GUARDED_BY(mutex_) = 0;     // ticket of the next caller of Lock
  int64_t current_ GUARDED_BY(mutex_) = 0;  // ticket of the holder, or of the next holder
};

// Holds the mutex for its lifetime.
class SLUICE_LOCK_ATTRIBUTE(scoped_lockable) FairMutexLock {
 public:
  explicit FairMutexLock(FairMutex& mutex) SLUICE_LOCK_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~FairMutexLock() SLUICE_LOCK_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  FairMutexLock(const FairMutexLock&) = delete;
  FairMutexLock& operator=(const FairMutexLock&) = delete;

 private:
  FairMutex& mutex_;
};

}  // namespace sluice
