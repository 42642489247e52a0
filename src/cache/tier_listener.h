// Interface of listeners that are notified when the prefix cache's tiers store or remove blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/block_pool.h"
#include "cache/tier_changes.h"
#include "cache/tier_key.h"

namespace sluice {

// Implemented by a CacheListener that also receives the changes of the tiers.
// CacheListener::OnCleared means that all blocks of the tiers were removed as well. Thread safety:
// like CacheListener.
class TierListener {
 public:
  virtual ~TierListener() = default;

  // A block that was reported as stored is about to be evicted; in the tiers, `name` identifies it.
  // `salt`: "" except for first blocks.
  virtual void OnTierName(const TierName& name, int64_t group, BlockId anchor, BlockId parent,
                          std::span<const int32_t> tokens, std::string_view salt) = 0;
  // The listener may not know the block: OnTierName may have named it before the listener existed
  // or before OnCleared.
  virtual void OnTierChange(const TierChange& change) = 0;
};

}  // namespace sluice
