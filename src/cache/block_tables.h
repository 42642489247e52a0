// The block lists of one sequence, one per group of layers.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"

namespace sluice {

// List 0 belongs to the group that keeps all positions. Ownership: like BlockList.
class BlockTables {
 public:
  explicit BlockTables(int64_t num_groups = 1) : lists_(static_cast<size_t>(num_groups)) {}

  int64_t num_groups() const { return static_cast<int64_t>(lists_.size()); }
  BlockList& operator[](int64_t group) { return lists_[static_cast<size_t>(group)]; }
  const BlockList& operator[](int64_t group) const { return lists_[static_cast<size_t>(group)]; }

  // Number of block references in all groups.
  int64_t num_held() const {
    int64_t held = 0;
    for (const BlockList& list : lists_) held += list.num_held();
    return held;
  }

  // Calls BlockList::set_owner for all groups.
  void set_owner(uint64_t owner) {
    for (BlockList& list : lists_) list.set_owner(owner);
  }
  void Reserve(int64_t count) {
    for (BlockList& list : lists_) list.Reserve(count);
  }
  // Releases all references in descending order of positions, so that the end of a sequence is
  // evicted before its beginning. At each position, group 0's block is released first: without it,
  // the other groups' blocks are useless and are evicted with it (prefix_index.h).
  void Clear() {
    int64_t most = 0;
    for (const BlockList& list : lists_) most = list.size() > most ? list.size() : most;
    for (int64_t size = most; size > 0; --size) {
      for (BlockList& list : lists_) {
        if (list.size() == size) list.PopBack();
      }
    }
  }

 private:
  std::vector<BlockList> lists_;
};

}  // namespace sluice
