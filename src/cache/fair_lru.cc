#include "cache/fair_lru.h"

namespace sluice {

FairLru::Owner& FairLru::OwnerOf(uint64_t name) {
  if (const auto found = owners_.find(name); found != owners_.end()) return found->second;
  if (owners_.size() - static_cast<size_t>(num_owners_) >= kMostIdleOwners) {
    std::erase_if(owners_, [](const auto& entry) { return entry.second.count == 0; });
    largest_ = nullptr;
  }
  return owners_[name];
}

void FairLru::PushBack(int32_t id, uint64_t name) {
  Owner& owner = OwnerOf(name);
  by_age_.PushBack(all_, id);
  by_owner_.PushBack(owner.ids, id);
  owner_of_[static_cast<size_t>(id)] = &owner;
  num_owners_ += owner.count++ == 0;
  ++size_;
}

void FairLru::Remove(int32_t id) {
  Owner& owner = *owner_of_[static_cast<size_t>(id)];
  by_age_.Remove(all_, id);
  by_owner_.Remove(owner.ids, id);
  num_owners_ -= --owner.count == 0;
  --size_;
}

FairLru::Owner& FairLru::Largest() {
  // Keep the previous choice if it still has at least its share.
  if (largest_ != nullptr && largest_->count > 0 && HasItsShare(*largest_)) return *largest_;
  largest_ = nullptr;
  for (auto& [name, owner] : owners_) {
    if (largest_ == nullptr || owner.count > largest_->count) largest_ = &owner;
  }
  return *largest_;
}

}  // namespace sluice
