// What the cache gained and lost in one step, as the engine's thread notes it.
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
  BlockId anchor = kNoBlock;  // as CacheListener
  BlockId parent = kNoBlock;  // of kStored
  size_t first_token = 0;     // of kStored, index into CacheEventBatch::tokens
  int32_t salt = -1;          // of kStored, index into CacheEventBatch::salts; -1: none
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
