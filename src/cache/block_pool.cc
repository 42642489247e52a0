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
    other.ids_.clear();
  }
  return *this;
}

void BlockList::PopBack() {
  if (size() > num_absent_)
    pool_->Release(ids_.back());
  else
    --num_absent_;
  ids_.pop_back();
}

void BlockList::DropFront(int64_t count) {
  CHECK_LE(count, size());
  for (int64_t i = count - 1; i >= num_absent_; --i)
    pool_->Release(std::exchange(ids_[static_cast<size_t>(i)], kNoBlock));
  num_absent_ = std::max(num_absent_, count);
}

void BlockList::StartAt(int64_t count) {
  CHECK(ids_.empty());
  ids_.assign(static_cast<size_t>(count), kNoBlock);
  num_absent_ = count;
}

BlockPool::BlockPool(int64_t num_blocks)
    : states_(static_cast<size_t>(num_blocks)), num_free_(num_blocks) {
  CHECK(num_blocks > 0);
  for (int64_t block = 0; block < num_blocks; ++block) PushBack(free_, static_cast<BlockId>(block));
}

bool BlockPool::Take(int64_t count, BlockList& list) {
  if (count > num_available()) return false;
  CHECK(list.pool_ == nullptr || list.pool_ == this);
  list.pool_ = this;
  for (int64_t i = 0; i < count; ++i) {
    BlockId block = free_.first;
    if (block >= 0) {
      Unlink(free_, block);
      --num_free_;
    } else {
      block = cached_.first;
      Unlink(cached_, block);
      --num_cached_;
      at(block).keep = false;
      if (evictor_ != nullptr) evictor_->OnEvict(block);
    }
    State& state = at(block);
    state.where = Where::kHeld;
    state.references = 1;
    ++num_held_;
    list.ids_.push_back(block);
  }
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
  Release(std::exchange(entry, block));
}

void BlockPool::AddReference(BlockId block) {
  State& state = at(block);
  CHECK(state.where != Where::kFree, "block {} is free", block);
  if (state.where == Where::kCached) {
    Unlink(cached_, block);
    --num_cached_;
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
    Unlink(cached_, block);
    --num_cached_;
    ++num_free_;
    state.where = Where::kFree;
    PushFront(free_, block);
  }
}

void BlockPool::Release(BlockId block) {
  State& state = at(block);
  CHECK(state.where == Where::kHeld && state.references > 0, "block {} is not held", block);
  if (--state.references > 0) return;
  --num_held_;
  if (state.keep) {
    state.where = Where::kCached;
    ++num_cached_;
    PushBack(cached_, block);
  } else {
    // Used again first: its memory is still warm.
    state.where = Where::kFree;
    ++num_free_;
    PushFront(free_, block);
  }
}

void BlockPool::PushBack(Chain& chain, BlockId block) {
  State& state = at(block);
  state.previous = chain.last;
  state.next = -1;
  (chain.last >= 0 ? at(chain.last).next : chain.first) = block;
  chain.last = block;
}

void BlockPool::PushFront(Chain& chain, BlockId block) {
  State& state = at(block);
  state.previous = -1;
  state.next = chain.first;
  (chain.first >= 0 ? at(chain.first).previous : chain.last) = block;
  chain.first = block;
}

void BlockPool::Unlink(Chain& chain, BlockId block) {
  State& state = at(block);
  (state.previous >= 0 ? at(state.previous).next : chain.first) = state.next;
  (state.next >= 0 ? at(state.next).previous : chain.last) = state.previous;
  state.previous = state.next = -1;
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
  if (free != num_free_ || cached != num_cached_ || held != num_held_ ||
      free + cached + held != num_blocks()) {
    return fail(fmt::format("free {}/{} + cached {}/{} + held {}/{} of {} blocks", free, num_free_,
                            cached, num_cached_, held, num_held_, num_blocks()));
  }
  const auto length = [&](const Chain& chain, Where where) -> int64_t {
    int64_t count = 0;
    BlockId previous = -1;
    for (BlockId block = chain.first; block >= 0;
         block = states_[static_cast<size_t>(block)].next) {
      const State& state = states_[static_cast<size_t>(block)];
      if (state.where != where || state.previous != previous || ++count > num_blocks()) return -1;
      previous = block;
    }
    return chain.last == previous ? count : -1;
  };
  if (length(free_, Where::kFree) != num_free_) return fail("the list of free blocks is broken");
  if (length(cached_, Where::kCached) != num_cached_)
    return fail("the list of cached blocks is broken");
  return {};
}

}  // namespace sluice
