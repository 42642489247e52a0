// Finds the blocks that already hold the beginning of a token sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cache/block_counts.h"
#include "cache/block_pool.h"
#include "cache/block_tables.h"

namespace sluice {

// 128 bits of a keyed hash over everything up to and including a block.
struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const PrefixHash&) const = default;
};

// How far a sequence's full blocks are known to the index; each sequence has one.
struct PrefixCursor {
  int64_t num_blocks = 0;         // leading blocks of the sequence that are in the index
  BlockId last_block = kNoBlock;  // of those, in group 0
  PrefixHash hash;                // over their tokens
};

// A trie of full blocks of group 0, flattened into a hash table: a block is found by the keyed hash
// of its chain, and taken only when its tokens, its parent block and (for the first block) the salt
// are equal. So a collision is a miss, never a wrong answer; and as the key is random a process,
// nobody outside can construct or recognise one.
//
// The blocks that other groups have at the same place are the companions of group 0's block; they
// come and go. A prefix is found as far as every group has what the next token needs: group 0 all
// of it, a group with chunks the blocks from the start of the next token's chunk on, one with a
// window the last of them.
//
// Thread safety: owned by the engine's thread.   Ownership: refers to the pool, holds no references
// to blocks. Invariant: the parent of an indexed block of group 0 is indexed (a sequence that holds
// a block holds its parents, and releases the tail first); a companion has its block of group 0.
// Allocates nothing after construction, except for salts.
class PrefixIndex : public BlockPool::Evictor {
 public:
  // Group 0 keeps all positions.
  PrefixIndex(BlockPool& pool, int block_size, std::span<const AttentionSpan> groups = {});
  ~PrefixIndex() override;

  int block_size() const { return block_size_; }
  int64_t num_indexed() const { return num_indexed_; }  // blocks of all groups

  PrefixCursor Start(std::string_view salt) const;

  // Finds the longest usable prefix of `tokens`, at most `max_blocks`, appends references to what
  // the next token needs of it to the tables (absent entries to what it does not), and moves the
  // cursor there. Returns its number of blocks. REQUIRES: tables are empty and the cursor at the
  // start.
  int64_t Match(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                PrefixCursor& cursor, BlockTables& tables);
  // The number of blocks Match() would return, and how many of those that it would take, over all
  // groups, nobody holds now.
  struct Found {
    int64_t blocks = 0;
    int64_t unheld = 0;
  };
  Found Count(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt);

  // Says that entry `cursor.num_blocks` of each table now holds the KV of `tokens` (one full
  // block). Where an equal block is indexed already, the table is switched over to it. Moves the
  // cursor on. REQUIRES: the entries are not absent.
  void Insert(std::span<const int32_t> tokens, std::string_view salt, PrefixCursor& cursor,
              BlockTables& tables);

  // Forgets all blocks that nobody holds. Returns false if some were held; those stay.
  bool Reset();

  void OnEvict(BlockId block) override;

  // Walks everything: blocks and their companions agree. The message says what does not.
  Status CheckInvariant() const;

 private:
  struct Entry {
    PrefixHash hash;
    BlockId parent = kNoBlock;
    BlockId next_in_bucket = kNoBlock;
    bool indexed = false;  // as a block of group 0
  };

  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  // The first block that a token after `num_blocks` full blocks needs.
  int64_t FirstNeeded(int64_t group, int64_t num_blocks) const {
    return groups_[static_cast<size_t>(group)].FirstSeen(num_blocks * block_size_) / block_size_;
  }
  // What group > 0 has where group 0 has `block`; kNoBlock if nothing.
  BlockId& CompanionOf(BlockId block, int64_t group) {
    return companions_[static_cast<size_t>(block * (num_groups() - 1) + group - 1)];
  }

  PrefixHash Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const;
  BlockId Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
               std::string_view salt) const;
  // Fills chain_ with the blocks of group 0 as far as they are known, and cuts it to what is
  // usable.
  void FindChain(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt);
  void Remove(BlockId block);           // of group 0, and its companions
  void RemoveCompanion(BlockId block);  // of another group
  size_t Bucket(const PrefixHash& hash) const { return hash.low & (buckets_.size() - 1); }

  BlockPool& pool_;
  const int block_size_;
  const std::vector<AttentionSpan> groups_;
  std::vector<unsigned char> secret_;
  std::vector<Entry> entries_;       // by block
  std::vector<BlockId> companions_;  // [num_blocks, groups but the first]
  std::vector<BlockId> anchors_;     // by block: that of group 0 whose companion it is
  std::vector<int32_t> tokens_;      // [num_blocks, block_size]
  std::vector<BlockId> buckets_;     // a power of two
  std::unordered_map<BlockId, std::string> salts_;  // of first blocks with a salt
  int64_t num_indexed_ = 0;
  std::vector<BlockId> chain_;       // of the last FindChain
  std::vector<int64_t> run_starts_;  // by group: since which block of it all have companions
};

}  // namespace sluice
