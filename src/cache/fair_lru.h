// What may be evicted, by age and by whom it belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cache/id_lists.h"

namespace sluice {

// Ids in [0, count), each of which may be in it once, with an owner. What is evicted next is the
// longest unused id, unless its owner holds less than an equal share (all ids in it, divided by the
// owners that have any): then it is the longest unused one of the owner that holds the most. So an
// owner who fills the cache takes nothing from those who hold less than their share. With one owner
// it is a plain list of the least recently used.
//
// All operations take constant time, but Victim, which looks at each owner where the longest unused
// id is spared. Allocates for an owner that is new. Thread safety: none.
class FairLru {
 public:
  explicit FairLru(int64_t count)
      : by_age_(count), by_owner_(count), owner_of_(static_cast<size_t>(count)) {}

  int64_t size() const { return size_; }
  int32_t oldest() const { return all_.first; }  // IdLists::kNone: it is empty

  // As the one used last.
  void PushBack(int32_t id, uint64_t owner);
  void Remove(int32_t id);

  // The id to evict; stays where it is. `may_go(id)`: whether it may be evicted before others that
  // were unused for longer; the oldest always may. REQUIRES: not empty.
  template <typename MayGo>
  int32_t Victim(const MayGo& may_go) {
    const Owner& owner = *owner_of_[static_cast<size_t>(all_.first)];
    if (HasItsShare(owner)) return all_.first;
    int32_t id = Largest().ids.first;
    for (int i = 0; i < kMostLookedAt && id != IdLists::kNone; ++i, id = by_owner_.Next(id)) {
      if (may_go(id)) return id;
    }
    return all_.first;
  }

  // The number of ids, or -1 where the lists disagree, or `belongs` is false of one.
  template <typename Belongs>
  int64_t Length(const Belongs& belongs) const {
    int64_t of_owners = 0, num_owners = 0;
    for (const auto& [name, owner] : owners_) {
      const auto is_own = [&](int32_t id) {
        return belongs(id) && owner_of_[static_cast<size_t>(id)] == &owner;
      };
      if (by_owner_.Length(owner.ids, is_own) != owner.count) return -1;
      of_owners += owner.count;
      num_owners += owner.count > 0;
    }
    if (of_owners != size_ || num_owners != num_owners_) return -1;
    return by_age_.Length(all_, belongs) == size_ ? size_ : -1;
  }

 private:
  struct Owner {
    IdLists::List ids;
    int64_t count = 0;
  };
  // Ids of an owner that Victim looks at, and owners without ids that are kept for later.
  static constexpr int kMostLookedAt = 16;
  static constexpr size_t kMostIdleOwners = 1024;

  bool HasItsShare(const Owner& owner) const { return owner.count * num_owners_ >= size_; }
  Owner& OwnerOf(uint64_t name);
  Owner& Largest();

  IdLists by_age_, by_owner_;
  IdLists::List all_;
  int64_t size_ = 0;
  std::vector<Owner*> owner_of_;  // by id, of those that are in it
  std::unordered_map<uint64_t, Owner> owners_;
  int64_t num_owners_ = 0;    // that have ids
  Owner* largest_ = nullptr;  // as of the last look
};

}  // namespace sluice
