// Finds the blocks that already hold the beginning of a token sequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
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
#include "cache/tier_key.h"

namespace sluice {

class BlockTiers;

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
  // Where blocks leave the pool and come back:
  std::vector<TierKey> keys;        // of the leading full blocks, as far as they were needed
  int64_t num_restored = 0;         // blocks that came back for it, of all groups
  int64_t num_restored_places = 0;  // likewise of group 0
  // The next block is here by then, while some are awaited.
  std::optional<std::chrono::steady_clock::time_point> restores_until;
  bool gave_up = false;  // waiting for them
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
// With tiers (block_tiers.h), a block that is evicted is kept there, and comes back for a sequence
// that is about to be admitted.
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

  // Null: evicted blocks are lost. REQUIRES: nothing is indexed, and sequences keep no states. The
  // tiers outlive the index.
  void UseTiers(BlockTiers* tiers);
  bool has_tiers() const { return tiers_ != nullptr; }

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

  // With tiers, both are asked before a sequence is admitted. False: so many blocks have been moved
  // in this step, or the next one has yet to come from the disk; ask again in the next step.
  //
  // Restore brings back what would make Count() return more, as cached blocks of `owner`, in place
  // of the longest unused ones. Each lookup brings each block of its tokens back once.
  bool Restore(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
               PrefixLookup& lookup, uint64_t owner);
  // Evicts until `count` blocks are free, but none of the `found` blocks that Count() has returned.
  // REQUIRES: as many are available.
  bool MakeRoom(const PrefixLookup& lookup, int64_t found, int64_t count, uint64_t owner);
  // A step is planned: blocks may be moved again.
  void BeginStep();
  // At the end: what is cached goes to the disk of the tiers, the last used first, as far as that
  // takes it within so many seconds. Nothing is indexed then. REQUIRES: no sequence holds blocks.
  void SaveToDisk(double max_seconds);

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

  // Removes all blocks that no sequence holds; those of the tiers, too, but with `keeps_disk` those
  // on disk. Returns false if some were held; those stay.
  bool Reset(bool keeps_disk = false);

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
  // The longest prefix, of at most `usable` blocks, of which the other groups have what the next
  // token needs, and of which the last block has a snapshot, if `needs_state`. `has`: whether a
  // group has something at a place.
  template <typename Has>
  int64_t LongestUsable(const PrefixLookup& lookup, int64_t usable, bool needs_state,
                        const Has& has);
  // Likewise of the chain.
  int64_t CountUsable(const PrefixLookup& lookup, int64_t max_blocks, bool needs_state);
  // The key of a block of the tokens.
  const TierKey& KeyAt(std::span<const int32_t> tokens, int64_t place, std::string_view salt,
                       PrefixLookup& lookup) const;
  // A block at a place that is to come back.
  struct Absent {
    int64_t place = 0;
    int64_t group = 0;
  };
  // What would make more of the tokens usable than are, in the order of places; empty: nothing.
  std::vector<Absent> FindAbsent(std::span<const int32_t> tokens, int64_t max_blocks,
                                 std::string_view salt, PrefixLookup& lookup);
  // References to the first blocks of the chain, and what other groups need with them.
  std::vector<BlockList> HoldFound(const PrefixLookup& lookup, int64_t found, uint64_t owner);
  // Brings one block back. False if it has gone meanwhile, or the pool has no block left.
  bool RestoreOne(std::span<const int32_t> tokens, const Absent& absent, std::string_view salt,
                  PrefixLookup& lookup, BlockList& held);
  // Calls `visit` with the key, group and id of an indexed block, and of those that go with it.
  template <typename Visit>
  void ForEachGone(BlockId block, const Visit& visit) const;
  // Gives the content of a block that is evicted to the tiers.
  void Store(BlockId block);
  // Puts blocks that are not indexed into the index.
  void AddBlock(BlockId block, const PrefixHash& hash, BlockId parent,
                std::span<const int32_t> tokens, std::string_view salt);
  void AddCompanion(BlockId companion, int64_t group, BlockId anchor,
                    std::span<const int32_t> tokens, std::string_view salt);
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
  BlockTiers* tiers_ = nullptr;
  const int block_size_;
  const std::vector<AttentionSpan> groups_;
  std::vector<unsigned char> secret_;
  std::vector<Entry> entries_;         // by block
  std::vector<BlockId> companions_;    // [num_blocks, groups but the first]
  std::vector<BlockId> anchors_;       // by block: that of group 0 whose companion it is
  std::vector<BlockId> state_blocks_;  // by slot: the block whose snapshot it holds
  std::vector<int32_t> tokens_;        // [num_blocks, block_size]
  std::vector<BlockId> buckets_;       // a power of two
  std::vector<TierKey> keys_;          // by block of group 0, where there are tiers
  std::unordered_map<BlockId, std::string> salts_;  // of first blocks with a salt
  int64_t num_indexed_ = 0;
  uint64_t next_serial_ = 1;
  int64_t num_visits_ = 0;
  bool is_resetting_ = false;          // what is evicted is not kept
  std::vector<int64_t> present_from_;  // scratch of CountUsable, by group
};

}  // namespace sluice
