#include "cache/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

BlockList& BlockList::operator=(BlockList&& other) noexcept {
  if (this != &other) {
    Clear();
    pool_ = std::exchange(other.pool_, nullptr);
    ids_ = std::move(other.ids_);
    num_absent_ = std::exchange(other.num_absent_, 0);
    owner_ = other.owner_;
    other.ids_.clear();
  }
  return *this;
}

void BlockList::PopBack() {
  if (size() > num_absent_)
    pool_->Release(ids_.back(), owner_);
  else
    --num_absent_;
  ids_.pop_back();
}

void BlockList::DropFront(int64_t count) {
  CHECK_LE(count, size());
  for (int64_t i = count - 1; i >= num_absent_; --i)
    pool_->Release(std::exchange(ids_[static_cast<size_t>(i)], kNoBlock), owner_);
  num_absent_ = std::max(num_absent_, count);
}

void BlockList::StartAt(int64_t count) {
  CHECK(ids_.empty());
  ids_.assign(static_cast<size_t>(count), kNoBlock);
  num_absent_ = count;
}

BlockPool::BlockPool(int64_t num_blocks)
    : states_(static_cast<size_t>(num_blocks)),
      lists_(num_blocks),
      cached_(num_blocks),
      num_free_(num_blocks) {
  CHECK(num_blocks > 0);
  for (int64_t block = 0; block < num_blocks; ++block)
    lists_.PushBack(free_, static_cast<BlockId>(block));
}

bool BlockPool::Take(int64_t count, BlockList& list) {
  if (count > num_available()) return false;
  CHECK(list.pool_ == nullptr || list.pool_ == this);
  list.pool_ = this;
  for (int64_t i = 0; i < count; ++i) {
    BlockId block = free_.first;
    if (block >= 0) {
      lists_.Remove(free_, block);
      --num_free_;
    } else {
      block = Evict();
    }
    State& state = at(block);
    state.where = Where::kHeld;
    state.references = 1;
    ++num_held_;
    list.ids_.push_back(block);
  }
  return true;
}

std::optional<BlockId> BlockPool::NextEvicted() {
  if (num_cached() == 0) return std::nullopt;
  return cached_.Victim(
      [this](BlockId id) { return evictor_ == nullptr || evictor_->MayEvict(id); });
}

BlockId BlockPool::Evict() {
  const BlockId block = *NextEvicted();
  cached_.Remove(block);
  at(block).keep = false;
  if (evictor_ != nullptr) evictor_->OnEvict(block);
  return block;
}

bool BlockPool::EvictOne() {
  if (num_cached() == 0) return false;
  const BlockId block = Evict();
  at(block).where = Where::kFree;
  ++num_free_;
  lists_.PushFront(free_, block);
  return true;
}

void BlockPool::Share(BlockId block, BlockList& list) {
  CHECK(list.pool_ == nullptr || list.pool_ == this);
  list.pool_ = this;
  AddReference(block);
  list.ids_.push_back(block);
}

void BlockPool::Replace(BlockList& list, int64_t index, BlockId block) {
  CHECK(list.pool_ == this);
  CHECK_GE(index, list.num_absent_);
  BlockId& entry = list.ids_[static_cast<size_t>(index)];
  AddReference(block);
  Release(std::exchange(entry, block), list.owner_);
}

void BlockPool::AddReference(BlockId block) {
  State& state = at(block);
  CHECK(state.where != Where::kFree, "block {} is free", block);
  if (state.where == Where::kCached) {
    cached_.Remove(block);
    ++num_held_;
    state.where = Where::kHeld;
  }
  ++state.references;
}

void BlockPool::Keep(BlockId block) {
  CHECK(at(block).where == Where::kHeld, "block {} is not held", block);
  at(block).keep = true;
}

void BlockPool::Forget(BlockId block) {
  State& state = at(block);
  CHECK(state.where != Where::kFree, "block {} is free", block);
  state.keep = false;
  if (state.where == Where::kCached) {
    cached_.Remove(block);
    ++num_free_;
    state.where = Where::kFree;
    lists_.PushFront(free_, block);
  }
}

void BlockPool::Release(BlockId block, uint64_t owner) {
  State& state = at(block);
  CHECK(state.where == Where::kHeld && state.references > 0, "block {} is not held", block);
  if (--state.references > 0) return;
  --num_held_;
  if (state.keep) {
    state.where = Where::kCached;
    cached_.PushBack(block, owner);
  } else {
    // Free blocks are reused last in, first out: the memory of the latest one is probably still in
    // the CPU's caches.
    state.where = Where::kFree;
    ++num_free_;
    lists_.PushFront(free_, block);
  }
}

Status BlockPool::CheckInvariant() const {
  const auto fail = [](std::string message) {
    return Fail(ErrorCode::kInternal, std::move(message));
  };
  int64_t free = 0, cached = 0, held = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    const bool is_held = state.where == Where::kHeld;
    free += state.where == Where::kFree;
    cached += state.where == Where::kCached;
    held += is_held;
    if (is_held != (state.references > 0))
      return fail(fmt::format("block {}: {} references", i, state.references));
    if (state.where == Where::kCached && !state.keep)
      return fail(fmt::format("block {} is cached, not kept", i));
    if (state.where == Where::kFree && state.keep)
      return fail(fmt::format("block {} is free, but kept", i));
  }
  if (free != num_free_ || cached != num_cached() || held != num_held_ ||
      free + cached + held != num_blocks()) {
    return fail(fmt::format("free {}/{} + cached {}/{} + held {}/{} of {} blocks", free, num_free_,
                            cached, num_cached(), held, num_held_, num_blocks()));
  }
  const auto is_at = [this](Where where) {
    return
        [this, where](BlockId block) { return states_[static_cast<size_t>(block)].where == where; };
  };
  if (lists_.Length(free_, is_at(Where::kFree)) != num_free_)
    return fail("the list of free blocks is broken");
  if (cached_.Length(is_at(Where::kCached)) != num_cached())
    return fail("the list of cached blocks is broken");
  return {};
}

}  // namespace sluice
