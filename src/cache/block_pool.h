// Manages the ids of the KV cache's blocks: which are referenced, and which unreferenced ones still
// have content that the prefix index can find.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cache/fair_lru.h"
#include "cache/id_lists.h"

namespace sluice {

using BlockId = int32_t;

constexpr BlockId kNoBlock = -1;

class BlockPool;

// The blocks of one sequence, ordered by position; each entry is one reference. The array of ids is
// the block table that the attention kernel reads. The first entries may be absent (kNoBlock) if
// their positions are no longer read. Ownership: move-only; releases its references when destroyed,
// the last block first, so that the end of a sequence is evicted before its beginning.
class BlockList {
 public:
  BlockList() = default;
  BlockList(BlockList&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        ids_(std::move(other.ids_)),
        num_absent_(std::exchange(other.num_absent_, 0)),
        owner_(other.owner_) {
    other.ids_.clear();
  }
  BlockList& operator=(BlockList&& other) noexcept;
  ~BlockList() { Clear(); }

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  int64_t num_absent() const { return num_absent_; }
  int64_t num_held() const { return size() - num_absent_; }
  bool empty() const { return ids_.empty(); }
  BlockId operator[](int64_t index) const { return ids_[static_cast<size_t>(index)]; }
  const BlockId* data() const { return ids_.data(); }
  std::span<const BlockId> ids() const { return ids_; }

  // Sets the owner of the blocks that become cached when this list releases them.
  void set_owner(uint64_t owner) { owner_ = owner; }
  void Reserve(int64_t count) { ids_.reserve(static_cast<size_t>(count)); }
  // Releases all references, last block first. Keeps the capacity.
  void Clear() {
    while (!ids_.empty()) PopBack();
  }
  void PopBack();
  // Removes all entries after the first `count`, in reverse order.
  void Truncate(int64_t count) {
    while (size() > count) PopBack();
  }
  // Releases the first `count` entries in reverse order and makes them absent. REQUIRES: count <=
  // size().
  void DropFront(int64_t count);
  // Adds `count` absent entries. REQUIRES: the list is empty.
  void StartAt(int64_t count);

 private:
  friend class BlockPool;
  BlockPool* pool_ = nullptr;
  std::vector<BlockId> ids_;
  int64_t num_absent_ = 0;
  uint64_t owner_ = 0;
};

// Every block is held (a sequence references it), cached (unreferenced, but the prefix index can
// find its content) or free. All operations are O(1) per block. Thread safety: used by the engine's
// thread only. Ownership: outlives its BlockLists. Invariant: num_free() + num_held() +
// num_cached() == num_blocks().
class BlockPool {
 public:
  // Receives evictions of cached blocks.
  class Evictor {
   public:
    virtual ~Evictor() = default;
    virtual void OnEvict(BlockId block) = 0;
    // Returns whether `block` may be evicted before blocks that were used less recently.
    virtual bool MayEvict(BlockId /*block*/) const { return true; }
  };

  // Block ids are [0, num_blocks).
  explicit BlockPool(int64_t num_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  void set_evictor(Evictor* evictor) { evictor_ = evictor; }

  int64_t num_blocks() const { return static_cast<int64_t>(states_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_cached() const { return cached_.size(); }
  int64_t num_held() const { return num_held_; }
  // Number of blocks that Take() can return. Take() uses free blocks first, then evicts cached
  // ones, least recently used first. It spares blocks of owners that have less than an equal share
  // of the cached blocks (fair_lru.h).
  int64_t num_available() const { return num_free_ + num_cached(); }

  // Appends `count` blocks with undefined content to `list`. Returns false and changes nothing if
  // fewer are available.
  [[nodiscard]] bool Take(int64_t count, BlockList& list);
  // Evicts the cached block that Take() would evict next, which frees it. Returns false if none is
  // cached.
  bool EvictOne();
  // The block that EvictOne() would evict; nullopt if none is cached.
  std::optional<BlockId> NextEvicted();
  // Appends another reference to a held or cached block.
  void Share(BlockId block, BlockList& list);
  // Makes entry `index` of `list` a reference to `block` and releases the old reference.
  void Replace(BlockList& list, int64_t index, BlockId block);

  // Determines whether the block becomes cached (Keep) or free (Forget) when its last reference is
  // released. REQUIRES: the block is held; for Forget, held or cached.
  void Keep(BlockId block);
  void Forget(BlockId block);  // frees a cached block immediately

  int32_t references(BlockId block) const { return states_[static_cast<size_t>(block)].references; }

  // Checks that counts, lists and states agree; the error message names the mismatch.
  Status CheckInvariant() const;

 private:
  friend class BlockList;

  enum class Where : uint8_t { kFree, kCached, kHeld };
  struct State {
    int32_t references = 0;
    Where where = Where::kFree;
    bool keep = false;
  };

  BlockId Evict();
  void Release(BlockId block, uint64_t owner);
  void AddReference(BlockId block);
  State& at(BlockId block) { return states_[static_cast<size_t>(block)]; }

  std::vector<State> states_;
  IdLists lists_;
  IdLists::List free_;
  FairLru cached_;
  int64_t num_free_ = 0;
  int64_t num_held_ = 0;
  Evictor* evictor_ = nullptr;
};

}  // namespace sluice
