// Keeps blocks evicted from the pool in memory.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cache/byte_blocks.h"
#include "cache/tier_key.h"

namespace sluice {

// Stores the content of blocks by name. All operations take constant time. Thread safety: one
// thread at a time.
class RamTier {
 public:
  struct Kept {
    TierName name;
    bool is_durable = true;
    HeldBytes bytes;
  };

  explicit RamTier(int64_t max_blocks) : max_blocks_(max_blocks) {}

  int64_t max_blocks() const { return max_blocks_; }
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  bool Has(const TierName& name) const { return places_.contains(name); }
  // Marks the block as most recently used. Returns false if it is absent.
  bool Touch(const TierName& name);
  // Removes and returns the block; null if it is absent.
  HeldBytes Take(const TierName& name);
  // REQUIRES: size() < max_blocks(), and the block is absent.
  void Add(Kept kept);
  // Removes and returns the least or the most recently used block; nullopt if there is none.
  std::optional<Kept> TakeOldest();
  std::optional<Kept> TakeNewest();
  void Clear();

 private:
  using List = std::list<Kept>;  // least recently used first

  std::optional<Kept> TakeAt(List::iterator place);

  const int64_t max_blocks_;
  List kept_;
  std::unordered_map<TierName, List::iterator, TierNameHash> places_;
};

}  // namespace sluice
