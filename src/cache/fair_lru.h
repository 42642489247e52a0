// Chooses what to evict by age and by owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cache/id_lists.h"

namespace sluice {

// A set of ids from [0, count), each with an owner. It evicts the least recently used id, unless
// that id's owner holds less than an equal share (ids in the set / owners that have any). Then it
// evicts the least recently used id of the owner that holds the most. So an owner who fills the
// cache takes nothing from owners below their share. With a single owner this is a plain LRU list.
//
// All operations take constant time, except Victim, which looks at each owner if the least recently
// used id is spared. Allocates memory for a new owner. Thread safety: none.
class FairLru {
 public:
  explicit FairLru(int64_t count)
      : by_age_(count), by_owner_(count), owner_of_(static_cast<size_t>(count)) {}

  int64_t size() const { return size_; }
  int32_t oldest() const { return all_.first; }  // IdLists::kNone if empty

  // Adds `id` as the most recently used one.
  void PushBack(int32_t id, uint64_t owner);
  void Remove(int32_t id);

  // Returns the id to evict, which stays in the set. `may_go(id)`: whether it may be evicted before
  // ids used less recently; the oldest always may. REQUIRES: not empty.
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

  // Returns the number of ids, or -1 if the lists disagree or `belongs` is false for an id.
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
  // Victim examines at most this many of an owner's ids. Owners without ids are forgotten once
  // there are more than this many of them.
  static constexpr int kMostLookedAt = 16;
  static constexpr size_t kMostIdleOwners = 1024;

  bool HasItsShare(const Owner& owner) const { return owner.count * num_owners_ >= size_; }
  Owner& OwnerOf(uint64_t name);
  Owner& Largest();

  IdLists by_age_, by_owner_;
  IdLists::List all_;
  int64_t size_ = 0;
  std::vector<Owner*> owner_of_;  // by id, for ids in the set
  std::unordered_map<uint64_t, Owner> owners_;
  int64_t num_owners_ = 0;    // number of owners that have ids
  Owner* largest_ = nullptr;  // may be outdated; null: unknown
};

}  // namespace sluice
