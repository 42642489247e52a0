// Interface of listeners that are notified when the prefix cache stores or removes blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/attention_span.h"
#include "cache/block_pool.h"

namespace sluice {

// Counts of event batches.
struct CacheEventCounts {
  uint64_t published = 0;  // batches sent
  // Batches dropped because the listener's queue was full. Their content is reported again later.
  uint64_t dropped = 0;
  // Batches that at least one subscriber missed because it reads too slowly.
  uint64_t missed = 0;
};

// In all groups, blocks at the same place in a sequence hold the same tokens. Events therefore name
// a block by its *anchor*, group 0's block at that place. A block is reported after its parent.
//
// Thread safety: called only by the engine's thread, except counts(), which any thread may call.
// Methods must not block.
class CacheListener {
 public:
  virtual ~CacheListener() = default;

  // The cache is empty and has blocks [0, num_blocks). Called first, and again when a new cache
  // replaces the old one.
  virtual void OnStart(int64_t num_blocks, int block_size,
                       std::span<const AttentionSpan> groups) = 0;
  // `group` now holds the block with these tokens, which follow those of `parent` (kNoBlock: it is
  // the first block). `salt`: the sequence's salt, made by MakeCacheSalt().
  virtual void OnStored(int64_t group, BlockId anchor, BlockId parent,
                        std::span<const int32_t> tokens, std::string_view salt) = 0;
  virtual void OnRemoved(int64_t group, BlockId anchor) = 0;
  // All blocks were removed from the cache.
  virtual void OnCleared() = 0;

  // Whether earlier events were lost. If so, the caller reports the whole content
  // (PrefixIndex::Tell).
  virtual bool wants_everything() const = 0;
  // A step or a command has ended: the events since the previous call form one batch.
  virtual void EndBatch() = 0;

  virtual CacheEventCounts counts() const = 0;
};

}  // namespace sluice
