// Blocks that have left the pool, in memory.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "cache/byte_blocks.h"
#include "cache/tier_key.h"

namespace sluice {

// Keeps the content of blocks by name, the longest unused leaving first. All operations take
// constant time. Thread safety: one thread at a time.
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
  // It becomes the last one used. False if it is not there.
  bool Touch(const TierName& name);
  // Takes it out; null if it is not there.
  HeldBytes Take(const TierName& name);
  // REQUIRES: size() < max_blocks(), and it is not there.
  void Add(Kept kept);
  // Takes out the longest unused one, or the last used one; none if there are none.
  std::optional<Kept> TakeOldest();
  std::optional<Kept> TakeNewest();
  void Clear();

 private:
  using List = std::list<Kept>;  // the longest unused first

  std::optional<Kept> TakeAt(List::iterator place);

  const int64_t max_blocks_;
  List kept_;
  std::unordered_map<TierName, List::iterator, TierNameHash> places_;
};

}  // namespace sluice
