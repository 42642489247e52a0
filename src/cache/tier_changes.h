// Reports the blocks that the tiers add and remove to the listener of the prefix cache.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cache/tier_key.h"

namespace sluice {

enum class TierMedium : uint8_t { kMemory, kDisk };

struct TierChange {
  TierName name;
  TierMedium medium = TierMedium::kMemory;
  bool is_stored = false;  // false: removed
};

// Queue of tier changes for one engine's listener, in order. Thread safety: any thread; the disk's
// thread also adds changes.
class TierChanges {
 public:
  void Add(const TierChange& change) {
    const MutexLock lock(mutex_);
    changes_.push_back(change);
  }
  // Returns the changes since the last call.
  std::vector<TierChange> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(changes_, {});
  }

 private:
  Mutex mutex_;
  std::vector<TierChange> changes_ GUARDED_BY(mutex_);
};

}  // namespace sluice
