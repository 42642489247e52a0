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
#include "cache/cache_listener.h"
#include "cache/state_pool.h"

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

// What was found out about the prefix of one waiting sequence, kept so that asking again costs only
// what has changed since. REQUIRES: the sequence's tokens change only at their end.
struct PrefixLookup {
  struct Link {
    BlockId block = kNoBlock;
    uint64_t serial = 0;
  };
  std::vector<PrefixHash> hashes;  // of the leading full blocks, as far as they were needed
  std::vector<Link> chain;         // the blocks of group 0 that held them when asked last
};

// A trie of full blocks of group 0, flattened into a hash table: a block is found by the keyed hash
// of its chain, and taken only when its tokens, its parent block and (for the first block) the salt
// are equal. So a collision is a miss, never a wrong answer; and as the key is random a process,
// clients can neither construct nor recognise one.
//
// The blocks that other groups have at the same place are the companions of group 0's block; they
// are added and evicted on their own. A prefix is found as far as every group has what the next
// token needs: group 0 all of it, a group with chunks the blocks from the start of the next token's
// chunk on, one with a window the last of them.
//
// Where sequences keep states besides, a block may have a snapshot: the states after its last
// token. A prefix is then found as far as a block with one.
//
// Thread safety: used by the engine's thread only. Ownership: refers to the pool, holds no
// references to blocks. Invariant: the parent of an indexed block of group 0 is indexed, and held
// where the block is (a sequence that holds a block holds its parents, and releases the tail
// first); a companion has its block of group 0. Allocates nothing after construction, except for
// salts.
class PrefixIndex : public BlockPool::Evictor, public StatePool::Evictor {
 public:
  // Group 0 keeps all positions. `states`: null where sequences keep none. `listener`: null where
  // nobody listens. Both outlive the index.
  PrefixIndex(BlockPool& pool, int block_size, std::span<const AttentionSpan> groups = {},
              StatePool* states = nullptr, CacheListener* listener = nullptr);
  ~PrefixIndex() override;

  int block_size() const { return block_size_; }
  int64_t num_indexed() const { return num_indexed_; }  // blocks of all groups

  PrefixCursor Start(std::string_view salt) const;

  // Finds the longest usable prefix of `tokens`, at most `max_blocks`, appends references to what
  // the next token needs of it to the tables (absent entries to what it does not), and moves the
  // cursor there. Returns its number of blocks. `lookup` belongs to the same tokens and salt.
  // REQUIRES: tables are empty and the cursor at the start.
  int64_t Match(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                PrefixLookup& lookup, PrefixCursor& cursor, BlockTables& tables);
  // The number of blocks Match() would return, and how many of those that it would take, over all
  // groups, no sequence holds now. With the same `lookup` as before it visits only blocks that were
  // added or evicted since, those that a group with a limit needs, those after the last snapshot
  // where sequences keep states, and a logarithm of the rest.
  struct Found {
    int64_t blocks = 0;
    int64_t unheld = 0;
    // Blocks that Match() would return if every block had a snapshot.
    int64_t without_states = 0;
  };
  Found Count(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
              PrefixLookup& lookup);
  // Blocks that Count and Match have visited since construction: a measure of their work.
  int64_t num_visits() const { return num_visits_; }

  // Adds the blocks of entry `cursor.num_blocks` of each table, which now hold the KV of `tokens`
  // (one full block), and advances the cursor. Where an equal block is indexed already, the table
  // is changed to that one. REQUIRES: the entries are not absent.
  void Insert(std::span<const int32_t> tokens, std::string_view salt, PrefixCursor& cursor,
              BlockTables& tables);

  // Where sequences keep states: `held` becomes the snapshot of an indexed block of group 0. If it
  // has one already, `held` is released. `is_passing`: it serves until the sequence has a later one
  // (TakePassing), unless somebody continued from it, or gave the block one that is not. `owner`:
  // whose it is (fair_lru.h).
  void SetState(BlockId block, HeldState held, bool is_passing, uint64_t owner);
  // The slot of the block's snapshot, which thereby becomes the last one used, and `owner`'s;
  // kNoState: none.
  StateId UseState(BlockId block, uint64_t owner);
  // Takes away the block's snapshot; the second one only if it is passing, and holds none
  // otherwise. REQUIRES of the first: it has one.
  HeldState TakeState(BlockId block);
  HeldState TakePassing(BlockId block);
  // The last place before `cursor` with a snapshot, or the start.
  PrefixCursor LastState(const PrefixCursor& cursor, std::string_view salt) const;

  // Removes all blocks that no sequence holds. Returns false if some were held; those stay.
  bool Reset();

  // Tells `listener` all that is indexed, parents first, after OnCleared().
  void Tell(CacheListener& listener) const;

  void OnEvict(BlockId block) override;
  // A block is evicted after those that follow it.
  bool MayEvict(BlockId block) const override {
    return entries_[static_cast<size_t>(block)].num_children == 0;
  }
  void OnEvictState(StateId slot) override;

  // Checks that all blocks and their companions agree; the message says which do not.
  Status CheckInvariant() const;

 private:
  struct Entry {
    PrefixHash hash;
    BlockId parent = kNoBlock;
    BlockId next_in_bucket = kNoBlock;
    int32_t num_children = 0;  // indexed blocks whose parent it is
    uint64_t serial = 0;  // of its insertion, never reused; 0: not indexed as a block of group 0
    StateId state = kNoState;  // the slot of its snapshot
    bool is_passing = false;

    bool indexed() const { return serial != 0; }
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
  BlockId CompanionOf(BlockId block, int64_t group) const {
    return companions_[static_cast<size_t>(block * (num_groups() - 1) + group - 1)];
  }

  PrefixHash Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const;
  BlockId Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
               std::string_view salt) const;
  // Brings lookup.chain up to date.
  void FindChain(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                 PrefixLookup& lookup);
  // How many blocks of the chain can be used: the other groups have what the next token needs, and
  // the last one has a snapshot, if `needs_state`.
  int64_t CountUsable(const PrefixLookup& lookup, int64_t max_blocks, bool needs_state);
  void Remove(BlockId block);           // of group 0, and its companions
  void RemoveCompanion(BlockId block);  // of another group
  size_t Bucket(const PrefixHash& hash) const { return hash.low & (buckets_.size() - 1); }

  // Salts of first blocks, as a view; "" where there is none.
  std::string_view SaltOf(BlockId first_block) const {
    const auto found = salts_.find(first_block);
    return found == salts_.end() ? std::string_view() : std::string_view(found->second);
  }

  BlockPool& pool_;
  StatePool* const states_;
  CacheListener* listener_;
  const int block_size_;
  const std::vector<AttentionSpan> groups_;
  std::vector<unsigned char> secret_;
  std::vector<Entry> entries_;         // by block
  std::vector<BlockId> companions_;    // [num_blocks, groups but the first]
  std::vector<BlockId> anchors_;       // by block: that of group 0 whose companion it is
  std::vector<BlockId> state_blocks_;  // by slot: the block whose snapshot it holds
  std::vector<int32_t> tokens_;        // [num_blocks, block_size]
  std::vector<BlockId> buckets_;       // a power of two
  std::unordered_map<BlockId, std::string> salts_;  // of first blocks with a salt
  int64_t num_indexed_ = 0;
  uint64_t next_serial_ = 1;
  int64_t num_visits_ = 0;
  std::vector<int64_t> present_from_;  // scratch of CountUsable, by group
};

}  // namespace sluice
