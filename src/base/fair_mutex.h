// A lock for which threads queue.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace sluice {

// Goes to the thread that has waited for the longest. Of a Mutex, a thread that unlocks it and
// locks it again at once, in a loop, may leave the others none. Checked like a Mutex.
class SLUICE_LOCK_ATTRIBUTE(capability("mutex")) FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  // Threads that wait, now.
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
  int64_t next_ GUARDED_BY(mutex_) = 0;     // of the next that comes
  int64_t current_ GUARDED_BY(mutex_) = 0;  // of the holder, or of the next
};

// Holds it for its lifetime.
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
