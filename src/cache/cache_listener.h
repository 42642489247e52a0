// Receives which blocks the prefix cache gains and loses.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/attention_span.h"
#include "cache/block_pool.h"

namespace sluice {

// Counts of event batches.
struct CacheEventCounts {
  uint64_t published = 0;  // sent batches
  // Batches dropped because the listener's queue was full; their content is reported again later.
  uint64_t dropped = 0;
  // Batches that at least one subscriber missed because it reads too slowly.
  uint64_t missed = 0;
};

// A block is named by the block of group 0 at the same place, its *anchor*: in all groups, blocks
// at one place hold the same tokens. A block is reported after its parent.
//
// Thread safety: called only by the engine's thread, except counts(), which any thread may call.
// Must not block.
class CacheListener {
 public:
  virtual ~CacheListener() = default;

  // The cache is empty and has blocks [0, num_blocks). Called first, and again when the cache was
  // replaced.
  virtual void OnStart(int64_t num_blocks, int block_size,
                       std::span<const AttentionSpan> groups) = 0;
  // `group` now holds the block with these tokens, which follow those of `parent` (kNoBlock: it is
  // the first block). `salt`: of the sequence, made by MakeCacheSalt().
  virtual void OnStored(int64_t group, BlockId anchor, BlockId parent,
                        std::span<const int32_t> tokens, std::string_view salt) = 0;
  virtual void OnRemoved(int64_t group, BlockId anchor) = 0;
  // Everything was removed.
  virtual void OnCleared() = 0;

  // Whether earlier events were lost: the caller then reports the whole content
  // (PrefixIndex::Tell).
  virtual bool wants_everything() const = 0;
  // A step or a command has ended: events since the last call form one batch.
  virtual void EndBatch() = 0;

  virtual CacheEventCounts counts() const = 0;
};

}  // namespace sluice
