// Who hears which blocks the prefix cache gains and loses.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/attention_span.h"
#include "cache/block_pool.h"

namespace sluice {

// What was told to subscribers so far.
struct CacheEventCounts {
  uint64_t published = 0;  // batches
  // Batches that found the listener's queue full; what they told is told again later.
  uint64_t dropped = 0;
  // Batches that at least one subscriber did not get because it reads too slowly.
  uint64_t missed = 0;
};

// A block is named by the block of group 0 at its place, its *anchor*: in all groups, blocks at one
// place hold the same tokens. Blocks are told after their parents.
//
// Thread safety: called by the engine's thread only, and must not block; counts() by any thread.
class CacheListener {
 public:
  virtual ~CacheListener() = default;

  // The cache is empty, with blocks [0, num_blocks). Called before anything else, and again when
  // the cache was replaced.
  virtual void OnStart(int64_t num_blocks, int block_size,
                       std::span<const AttentionSpan> groups) = 0;
  // `group` now holds the `tokens` (one block), which follow those of `parent` (kNoBlock: nothing).
  // `salt`: of the sequence, as CacheSalt() makes it.
  virtual void OnStored(int64_t group, BlockId anchor, BlockId parent,
                        std::span<const int32_t> tokens, std::string_view salt) = 0;
  virtual void OnRemoved(int64_t group, BlockId anchor) = 0;
  // Everything was removed.
  virtual void OnCleared() = 0;

  // Whether what was told before was lost: the caller then tells everything (PrefixIndex::Tell).
  virtual bool wants_everything() const = 0;
  // A step, or a command, has ended: what was told since the last call is one batch.
  virtual void EndBatch() = 0;

  virtual CacheEventCounts counts() const = 0;
};

}  // namespace sluice
