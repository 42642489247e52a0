#include "cache/state_pool.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

void HeldState::Release() {
  if (pool_ != nullptr) pool_->Release(id_);
  pool_ = nullptr;
  id_ = kNoState;
}

StatePool::StatePool(int64_t num_slots)
    : slots_(static_cast<size_t>(num_slots)),
      lists_(num_slots),
      kept_(num_slots),
      num_free_(num_slots) {
  CHECK_GT(num_slots, 0);
  for (int64_t slot = num_slots - 1; slot >= 0; --slot)
    lists_.PushBack(free_, static_cast<StateId>(slot));
}

HeldState StatePool::Take() {
  StateId slot = free_.last;  // the last one freed, whose memory is still in the CPU's caches
  if (slot != kNoState) {
    lists_.Remove(free_, slot);
    --num_free_;
  } else if (kept_.size() > 0) {
    slot = kept_.Victim([](StateId) { return true; });
    Remove(slot);
    if (evictor_ != nullptr) evictor_->OnEvictState(slot);
  } else {
    return {};
  }
  at(slot) = Where::kHeld;
  return {this, slot};
}

StateId StatePool::Keep(HeldState held, uint64_t owner) {
  CHECK(held.pool_ == this);
  const StateId slot = std::exchange(held.id_, kNoState);
  held.pool_ = nullptr;
  at(slot) = Where::kKept;
  kept_.PushBack(slot, owner);
  return slot;
}

void StatePool::Touch(StateId slot, uint64_t owner) {
  CHECK(at(slot) == Where::kKept, "slot {} holds no snapshot", slot);
  kept_.Remove(slot);
  kept_.PushBack(slot, owner);
}

void StatePool::Remove(StateId slot) {
  CHECK(at(slot) == Where::kKept, "slot {} holds no snapshot", slot);
  kept_.Remove(slot);
}

void StatePool::Drop(StateId slot) {
  TakeKept(slot).Release();
}

HeldState StatePool::TakeKept(StateId slot) {
  Remove(slot);
  at(slot) = Where::kHeld;
  return {this, slot};
}

void StatePool::Release(StateId slot) {
  CHECK(at(slot) == Where::kHeld, "slot {} is not held", slot);
  at(slot) = Where::kFree;
  lists_.PushBack(free_, slot);
  ++num_free_;
}

Status StatePool::CheckInvariant() const {
  const auto is_at = [this](Where where) {
    return [this, where](StateId slot) { return slots_[static_cast<size_t>(slot)] == where; };
  };
  const auto count = [this](Where where) { return std::ranges::count(slots_, where); };
  if (lists_.Length(free_, is_at(Where::kFree)) != num_free_ || count(Where::kFree) != num_free_)
    return Fail(ErrorCode::kInternal, "the list of free states is broken");
  if (kept_.Length(is_at(Where::kKept)) != num_kept() || count(Where::kKept) != num_kept())
    return Fail(ErrorCode::kInternal, "the list of kept states is broken");
  return {};
}

}  // namespace sluice
