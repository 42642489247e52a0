// Changes of the cache in one step, recorded by the engine's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/attention_span.h"
#include "cache/block_pool.h"

namespace sluice {

struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kCleared;
  int32_t group = 0;
  BlockId anchor = kNoBlock;  // see CacheListener
  BlockId parent = kNoBlock;  // for kStored
  size_t first_token = 0;     // for kStored: index into CacheEventBatch::tokens
  int32_t salt = -1;          // for kStored: index into CacheEventBatch::salts; -1: none
};

struct CacheShape {
  int64_t num_blocks = 0;
  int block_size = 0;
  std::vector<AttentionSpan> groups;
};

struct CacheEventBatch {
  double unix_seconds = 0;
  std::vector<CacheShape> shape;  // at most one: the cache was replaced before these events
  std::vector<CacheEvent> events;
  std::vector<int32_t> tokens;
  std::vector<std::string> salts;
};

}  // namespace sluice
