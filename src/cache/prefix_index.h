// Finds blocks that already hold the beginning of a token sequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/keyed_hash.h"
#include "base/result.h"
#include "cache/block_counts.h"
#include "cache/block_pool.h"
#include "cache/block_tables.h"
#include "cache/cache_listener.h"
#include "cache/state_pool.h"
#include "cache/tier_key.h"

namespace sluice {

class BlockTiers;

// A keyed 128-bit hash of all tokens up to and including a block's.
struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const PrefixHash&) const = default;
};

// A sequence's position in the index: how many of its leading full blocks are indexed.
struct PrefixCursor {
  int64_t num_blocks = 0;         // number of leading blocks of the sequence that are indexed
  BlockId last_block = kNoBlock;  // the last of these blocks, in group 0
  PrefixHash hash;                // hash of the tokens of these blocks
};

// Cached results of looking up the prefix of a waiting sequence, so that a repeated lookup costs
// only what has changed since. REQUIRES: tokens are only appended to the sequence or removed from
// its end.
struct PrefixLookup {
  struct Link {
    BlockId block = kNoBlock;
    uint64_t serial = 0;
  };
  std::vector<PrefixHash> hashes;  // hashes of the leading full blocks, computed as needed
  std::vector<Link> chain;         // group 0's blocks that the last lookup found
  // The members below are used only with tiers.
  std::vector<TierKey> keys;        // keys of the leading full blocks, computed as needed
  int64_t num_restored = 0;         // number of blocks restored for the sequence, in all groups
  int64_t num_restored_places = 0;  // number of blocks restored for the sequence in group 0
  // Deadline for the next block while the sequence waits for blocks from the disk.
  std::optional<std::chrono::steady_clock::time_point> restores_until;
  bool gave_up = false;  // the deadline passed, so the rest is computed
};

// A trie of group 0's full blocks, flattened into a hash table. A block is found by the keyed hash
// of its chain, and is used only if its tokens, its parent and (for a first block) the salt are
// equal. So a hash collision is a miss, never a wrong answer. The key is random per process, so
// clients can neither construct nor recognise collisions.
//
// Blocks of other groups at the same place are the companions of group 0's block; they are added
// and evicted independently. A prefix is usable if every group has the blocks that the next token
// needs. Group 0 needs all blocks. A group with chunks needs those from the start of the next
// token's chunk. A group with a window needs those that the window covers.
//
// If sequences keep recurrent states, a block may have a snapshot: the states after its last token.
// A usable prefix then ends with a block that has a snapshot.
//
// With tiers (block_tiers.h), evicted blocks and snapshots move there, and are restored for a
// sequence that is about to be admitted.
//
// Thread safety: used by the engine's thread only. Ownership: refers to the pool, holds no
// references to blocks. Invariants: the parent of an indexed block of group 0 is indexed. A block's
// parent is held while the block is held, because a sequence holds the parents of its blocks and
// releases its last blocks first. The block of group 0 to which a companion belongs is indexed.
// Allocates nothing after construction, except for salts.
class PrefixIndex : public BlockPool::Evictor, public StatePool::Evictor {
 public:
  // Group 0 keeps all positions. `states`: null if sequences keep no states. `listener` may be
  // null. Both must outlive the index.
  PrefixIndex(BlockPool& pool, int block_size, std::span<const AttentionSpan> groups = {},
              StatePool* states = nullptr, CacheListener* listener = nullptr);
  ~PrefixIndex() override;

  // Sets the tiers for evicted blocks and for evicted snapshots. Snapshots count in their tiers as
  // blocks of group 0 whose ids are slots. Both must outlive the index. REQUIRES: nothing is
  // indexed; `states` is null if and only if sequences keep no states.
  void UseTiers(BlockTiers* tiers, BlockTiers* states = nullptr);
  bool has_tiers() const { return tiers_ != nullptr; }

  int block_size() const { return block_size_; }
  int64_t num_indexed() const { return num_indexed_; }  // counts blocks of all groups

  PrefixCursor Start(std::string_view salt) const;

  // Finds the longest usable prefix of `tokens`, at most `max_blocks` blocks, and moves the cursor
  // to its end. Appends to the tables references to the blocks that the next token needs, and
  // absent entries for the other places. Returns the number of blocks in the prefix. `lookup`
  // belongs to the same tokens and salt. REQUIRES: the tables are empty and the cursor is at the
  // start.
  int64_t Match(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                PrefixLookup& lookup, PrefixCursor& cursor, BlockTables& tables);
  // Returns the number of blocks that Match() would return. Also returns how many of the blocks
  // that it would reference, in all groups, no sequence holds at present.
  //
  // With the `lookup` of an earlier call, it visits only blocks that were added or evicted since,
  // blocks that a group with a limited span needs, blocks after the last snapshot (if sequences
  // keep states), and log(n) of the rest.
  struct Found {
    int64_t blocks = 0;
    int64_t unheld = 0;
    // Number of blocks that Match() would return if every block had a snapshot.
    int64_t without_states = 0;
  };
  Found Count(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
              PrefixLookup& lookup);
  // Number of blocks that Count and Match have visited since construction. Measures their work.
  int64_t num_visits() const { return num_visits_; }

  // With tiers, Restore and MakeRoom are called before a sequence is admitted. They return false if
  // the limit of blocks moved per step is reached, or if the next block is still being read from
  // the disk. Call them again in the next step.
  //
  // Restore restores the blocks that would increase the result of Count(), as cached blocks of
  // `owner`. It evicts the least recently used blocks for them. Each lookup restores each block at
  // most once.
  bool Restore(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
               PrefixLookup& lookup, uint64_t owner);
  // Evicts cached blocks until `count` are free, but none of the `found` blocks that Count()
  // returned. REQUIRES: at least `count` are available.
  bool MakeRoom(const PrefixLookup& lookup, int64_t found, int64_t count, uint64_t owner);
  // Resets the count of moved blocks. Call before planning each step.
  void BeginStep();
  // For shutdown: empties the index and writes the cached blocks to the disk tier, most recently
  // used first, until `max_seconds` have passed. REQUIRES: no sequence holds blocks.
  void SaveToDisk(double max_seconds);

  // Indexes the block at index `cursor.num_blocks` of each table, which now holds the KV of
  // `tokens` (one full block), and advances the cursor. If an equal block is already indexed, the
  // table refers to that one afterwards. REQUIRES: the entries are not absent.
  void Insert(std::span<const int32_t> tokens, std::string_view salt, PrefixCursor& cursor,
              BlockTables& tables);

  // If sequences keep states: makes `held` the snapshot of an indexed block of group 0. If the
  // block already has a snapshot, `held` is released instead. `is_passing`: a temporary snapshot,
  // which a later one of the same sequence replaces (TakePassing). It becomes permanent when a
  // sequence continues from it, or when a permanent snapshot is set for the block. `owner`: see
  // fair_lru.h.
  void SetState(BlockId block, HeldState held, bool is_passing, uint64_t owner);
  // Returns the slot of the block's snapshot, or kNoState if it has none. The snapshot becomes
  // permanent, becomes the most recently used one, and is assigned to `owner`.
  StateId UseState(BlockId block, uint64_t owner);
  // Removes and returns the block's snapshot. TakePassing returns an empty one if there is none or
  // it is permanent. REQUIRES for TakeState: the block has a snapshot.
  HeldState TakeState(BlockId block);
  HeldState TakePassing(BlockId block);
  // Returns the last block up to `cursor` that has a snapshot, as a cursor; the start if there is
  // none.
  PrefixCursor LastState(const PrefixCursor& cursor, std::string_view salt) const;

  // Removes all blocks that no sequence holds, and the blocks in the tiers (with `keeps_disk`,
  // those on disk stay). Returns false if some blocks are held and therefore stay.
  bool Reset(bool keeps_disk = false);

  // Reports all indexed blocks to `listener`, parents first, after OnCleared().
  void Tell(CacheListener& listener) const;

  void OnEvict(BlockId block) override;
  // A block is evicted only after its children.
  bool MayEvict(BlockId block) const override {
    return entries_[static_cast<size_t>(block)].num_children == 0;
  }
  void OnEvictState(StateId slot) override;

  // Checks that blocks and companions agree; the error message names the mismatch.
  Status CheckInvariant() const;

 private:
  struct Entry {
    PrefixHash hash;
    BlockId parent = kNoBlock;
    BlockId next_in_bucket = kNoBlock;
    int32_t num_children = 0;  // number of indexed blocks with this parent
    uint64_t serial = 0;       // increases with each insertion, never reused; 0: not indexed in
                               // group 0
    StateId state = kNoState;  // slot of its snapshot
    bool is_passing = false;

    bool indexed() const { return serial != 0; }
  };

  int64_t num_groups() const { return static_cast<int64_t>(groups_.size()); }
  // Index of the first block that a token attends to if it follows `num_blocks` full blocks.
  int64_t FirstNeeded(int64_t group, int64_t num_blocks) const {
    return groups_[static_cast<size_t>(group)].FirstSeen(num_blocks * block_size_) / block_size_;
  }
  // Group `group`'s block at the place of group 0's `block`; kNoBlock if there is none. `group` >
  // 0.
  BlockId& CompanionOf(BlockId block, int64_t group) {
    return companions_[static_cast<size_t>(block * (num_groups() - 1) + group - 1)];
  }
  BlockId CompanionOf(BlockId block, int64_t group) const {
    return companions_[static_cast<size_t>(block * (num_groups() - 1) + group - 1)];
  }

  PrefixHash Extend(const PrefixHash& parent, std::span<const int32_t> tokens) const;
  BlockId Find(const PrefixHash& hash, BlockId parent, std::span<const int32_t> tokens,
               std::string_view salt) const;
  // Updates lookup.chain to the blocks that are indexed now.
  void FindChain(std::span<const int32_t> tokens, int64_t max_blocks, std::string_view salt,
                 PrefixLookup& lookup);
  // Returns the length in blocks of the longest usable prefix, at most `usable`. In a usable
  // prefix, every group has the blocks that the next token needs, and the last block has a snapshot
  // if one is needed. `has`: whether a group has a block at a place. `has_state`: whether the
  // snapshot at a place exists or is not needed.
  template <typename Has, typename HasState>
  int64_t LongestUsable(int64_t usable, const Has& has, const HasState& has_state);
  // Returns LongestUsable() for the chain of `lookup`.
  int64_t CountUsable(const PrefixLookup& lookup, int64_t max_blocks, bool needs_state);
  // Returns the tier key of the block of `tokens` at `place`.
  const TierKey& KeyAt(std::span<const int32_t> tokens, int64_t place, std::string_view salt,
                       PrefixLookup& lookup) const;
  // A block to restore, or the snapshot of the block at a place.
  struct Absent {
    static constexpr int64_t kSnapshot = -1;
    int64_t place = 0;
    int64_t group = 0;  // kSnapshot: the snapshot
  };
  // Returns the blocks whose restoration makes a longer prefix usable, by ascending place; empty if
  // none would help.
  std::vector<Absent> FindAbsent(std::span<const int32_t> tokens, int64_t max_blocks,
                                 std::string_view salt, PrefixLookup& lookup);
  // Takes a reference to each of the first `found` blocks of the chain, and to their companions
  // that the caller needs.
  std::vector<BlockList> HoldFound(const PrefixLookup& lookup, int64_t found, uint64_t owner);
  // Restores one block. Returns false if the tiers no longer have it, or if the pool has no block
  // left.
  bool RestoreOne(std::span<const int32_t> tokens, const Absent& absent, std::string_view salt,
                  PrefixLookup& lookup, BlockList& held);
  // Restores the snapshot of the block at `place` of the chain. Returns false as RestoreOne does.
  bool RestoreSnapshot(std::span<const int32_t> tokens, int64_t place, std::string_view salt,
                       PrefixLookup& lookup, uint64_t owner);
  // Calls `visit` with the key, group and id of an indexed block and of each companion, which are
  // evicted with it.
  template <typename Visit>
  void ForEachGone(BlockId block, const Visit& visit) const;
  // Saves to the tiers the content of a block, or of a block's snapshot, that is being evicted.
  void Store(BlockId block);
  void StoreSnapshot(BlockId block, StateId slot);
  // Adds a block that is not indexed yet.
  void AddBlock(BlockId block, const PrefixHash& hash, BlockId parent,
                std::span<const int32_t> tokens, std::string_view salt);
  void AddCompanion(BlockId companion, int64_t group, BlockId anchor,
                    std::span<const int32_t> tokens, std::string_view salt);
  void Remove(BlockId block);           // block of group 0; also removes its companions
  void RemoveCompanion(BlockId block);  // block of another group
  size_t Bucket(const PrefixHash& hash) const { return hash.low & (buckets_.size() - 1); }

  // Returns the salt of a first block, or "" if it has none.
  std::string_view SaltOf(BlockId first_block) const {
    const auto found = salts_.find(first_block);
    return found == salts_.end() ? std::string_view() : std::string_view(found->second);
  }

  BlockPool& pool_;
  StatePool* const states_;
  CacheListener* listener_;
  BlockTiers* tiers_ = nullptr;
  BlockTiers* state_tiers_ = nullptr;
  const int block_size_;
  const std::vector<AttentionSpan> groups_;
  const KeyedHash keyed_hash_;
  std::vector<Entry> entries_;         // indexed by block
  std::vector<BlockId> companions_;    // [num_blocks, number of groups - 1]
  std::vector<BlockId> anchors_;       // indexed by block: for a companion, its block of group 0
  std::vector<BlockId> state_blocks_;  // indexed by slot: the block whose snapshot the slot holds
  std::vector<int32_t> tokens_;        // [num_blocks, block_size]
  std::vector<BlockId> buckets_;       // hash table; its size is a power of two
  std::vector<TierKey> keys_;          // indexed by block of group 0; only with tiers
  std::unordered_map<BlockId, std::string> salts_;  // salts of first blocks
  int64_t num_indexed_ = 0;
  uint64_t next_serial_ = 1;
  int64_t num_visits_ = 0;
  bool is_resetting_ = false;          // while true, evicted blocks are not stored in the tiers
  std::vector<int64_t> present_from_;  // scratch of CountUsable, indexed by group
};

}  // namespace sluice
