// Finds the blocks that already hold the beginning of a token sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/block_pool.h"

namespace sluice {

// 128 bits of a keyed hash over everything up to and including a block.
struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const PrefixHash&) const = default;
};

// How far a sequence's full blocks are known to the index; each sequence has one.
struct PrefixCursor {
  int64_t num_blocks = 0;   // leading blocks of the sequence that are in the index
  BlockId last_block = -1;  // of those
  PrefixHash hash;          // over their tokens
};

// A trie of full blocks, flattened into a hash table: a block is found by the keyed hash of its
// chain, and taken only when its tokens, its parent block and (for the first block) the salt are
// equal. So a collision is a miss, never a wrong answer; and as the key is random a process, nobody
// outside can construct or recognise one. One index covers layers that keep all positions. Layers
// with local attention would get an index of their own over the same pool. Thread safety: owned by
// the engine's thread.   Ownership: refers to the pool, holds no references to blocks. Invariant:
// the parent of an indexed block is indexed (a sequence that holds a block holds its parents, and
// releases the tail first). Allocates nothing after construction, except for salts.
class PrefixIndex : public BlockPool::Evictor {
 public:
  PrefixIndex(BlockPool& pool, int block_size);
  ~PrefixIndex() override;

  int block_size() const { return block_size_; }
  int64_t num_indexed() const { return num_indexed_; }

  PrefixCursor Start(std::string_view salt) const;

  // Follows `tokens` (those after the cursor's blocks) block by block as far as the index knows
  // them, at most `max_blocks`, and appends a reference to each block found to `list`. Returns the
  // number of blocks.
  int64_t Match(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                PrefixCursor& cursor, BlockList& list);
  // The number of blocks Match() would find, and how many of them nobody holds now.
  struct Found {
    int64_t blocks = 0;
    int64_t unheld = 0;
  };
  Found Count(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt) const;

  // Says that entry `cursor.num_blocks` of `list` now holds the KV of `tokens` (one full block).
  // Where an equal block is indexed already, the list is switched over to it. Moves the cursor on.
  void Insert(std::span<const int32_t> tokens, std::string_view salt, PrefixCursor& cursor,
              BlockList& list);

  // Forgets all blocks that nobody holds. Returns false if some were held; those stay.
  bool Reset();

  void OnEvict(BlockId block) override;

 private:
  struct Entry {
    PrefixHash hash;
    BlockId parent = -1;
    BlockId next_in_bucket = -1;
    bool indexed = false;
  };

  PrefixHash Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const;
  BlockId Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
               std::string_view salt) const;
  void Remove(BlockId block);
  size_t Bucket(const PrefixHash& hash) const { return hash.low & (buckets_.size() - 1); }

  BlockPool& pool_;
  const int block_size_;
  std::vector<unsigned char> secret_;
  std::vector<Entry> entries_;                      // by block
  std::vector<int32_t> tokens_;                     // [num_blocks, block_size]
  std::vector<BlockId> buckets_;                    // a power of two
  std::unordered_map<BlockId, std::string> salts_;  // of first blocks with a salt
  int64_t num_indexed_ = 0;
};

}  // namespace sluice
