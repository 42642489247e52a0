// Unlocks a mutex temporarily in the middle of a scope that holds it.
#pragma once

#include "base/mutex.h"

namespace sluice {

// During its lifetime, unlocks a mutex that the caller holds through `lock`.
class SLUICE_LOCK_ATTRIBUTE(scoped_lockable) MutexUnlock {
 public:
  MutexUnlock([[maybe_unused]] Mutex& mutex, MutexLock& lock)
      SLUICE_LOCK_ATTRIBUTE(release_capability(mutex))
          SLUICE_LOCK_ATTRIBUTE(no_thread_safety_analysis)
      : lock_(lock) {
    lock_.Unlock();
  }
  ~MutexUnlock() SLUICE_LOCK_ATTRIBUTE(release_capability())
      SLUICE_LOCK_ATTRIBUTE(no_thread_safety_analysis) {
    lock_.Lock();
  }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  MutexLock& lock_;
};

}  // namespace sluice
