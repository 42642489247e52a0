// Changes of the cache in one step, recorded by the engine's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/attention_span.h"
#include "cache/block_pool.h"
#include "cache/tier_changes.h"

namespace sluice {

struct CacheEvent {
  // kTierName, kTier: as in CacheListener.
  enum class Kind : uint8_t { kStored, kRemoved, kCleared, kTierName, kTier };
  Kind kind = Kind::kCleared;
  int32_t group = 0;
  BlockId anchor = kNoBlock;  // see CacheListener
  BlockId parent = kNoBlock;  // for kStored and kTierName
  size_t first_token = 0;     // for kStored and kTierName: index into CacheEventBatch::tokens
  int32_t salt = -1;          // for kStored and kTierName: index into CacheEventBatch::salts; -1:
                              // none
  size_t tier_change = 0;     // for kTierName and kTier: index into CacheEventBatch::tier_changes
};

struct CacheShape {
  int64_t num_blocks = 0;
  int block_size = 0;
  std::vector<AttentionSpan> groups;
};

struct CacheEventBatch {
  double unix_seconds = 0;
  // At most one; if present, the cache was replaced before these events.
  std::vector<CacheShape> shape;
  std::vector<CacheEvent> events;
  std::vector<int32_t> tokens;
  std::vector<std::string> salts;
  std::vector<TierChange> tier_changes;  // for kTierName, only the name is set
};

}  // namespace sluice
