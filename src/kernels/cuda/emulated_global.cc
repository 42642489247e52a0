#include "kernels/cuda/emulated_global.h"

#include <cstring>

namespace sluice::emulator {

void WeakGlobalMemory::Watch(void* memory, size_t bytes) {
  memory_ = static_cast<unsigned char*>(memory);
  common_.assign(bytes, 0);
}

void WeakGlobalMemory::Begin(size_t blocks, size_t threads) {
  memcpy(common_.data(), memory_, common_.size());
  blocks_.assign(blocks, {common_, std::vector<std::vector<Store>>(threads)});
  left_.clear();
  present_ = ~size_t{0};
}

void WeakGlobalMemory::BeginBlock(size_t block) {
  Block& own = blocks_[block];
  for (auto& stores : own.stores) {
    left_.insert(left_.end(), stores.begin(), stores.end());
    stores.clear();
  }
  own.seen = common_;
  if (present_ == block) present_ = ~size_t{0};
}

void WeakGlobalMemory::Show(size_t block) {
  if (present_ == block) return;
  memcpy(memory_, blocks_[block].seen.data(), common_.size());
  present_ = block;
}

void WeakGlobalMemory::TakeStores(size_t block, size_t thread) {
  Block& own = blocks_[block];
  if (memcmp(own.seen.data(), memory_, common_.size()) == 0) return;
  for (size_t i = 0; i < common_.size(); ++i) {
    if (own.seen[i] == memory_[i]) continue;
    own.seen[i] = memory_[i];
    own.stores[thread].push_back({i, memory_[i]});
  }
}

void WeakGlobalMemory::Fence(size_t block, size_t thread) {
  TakeStores(block, thread);
  Block& own = blocks_[block];
  for (const Store& store : own.stores[thread]) common_[store.place] = store.value;
  own.stores[thread].clear();
  own.seen = common_;
  for (const auto& stores : own.stores) {
    for (const Store& store : stores) own.seen[store.place] = store.value;
  }
  memcpy(memory_, own.seen.data(), common_.size());
}

void WeakGlobalMemory::Refresh(size_t block, size_t thread, const void* address, size_t bytes) {
  size_t place = 0;
  if (!Find(address, bytes, place)) return;
  TakeStores(block, thread);
  Block& own = blocks_[block];
  memcpy(own.seen.data() + place, common_.data() + place, bytes);
  for (const auto& stores : own.stores) {
    for (const Store& store : stores) {
      if (store.place >= place && store.place < place + bytes) own.seen[store.place] = store.value;
    }
  }
  memcpy(memory_ + place, own.seen.data() + place, bytes);
}

void WeakGlobalMemory::Publish(const void* address, size_t bytes) {
  size_t place = 0;
  if (!Find(address, bytes, place)) return;
  memcpy(common_.data() + place, memory_ + place, bytes);
  for (Block& block : blocks_) memcpy(block.seen.data() + place, memory_ + place, bytes);
}

void WeakGlobalMemory::End() {
  for (const Store& store : left_) common_[store.place] = store.value;
  for (const Block& block : blocks_) {
    for (const auto& stores : block.stores) {
      for (const Store& store : stores) common_[store.place] = store.value;
    }
  }
  memcpy(memory_, common_.data(), common_.size());
  blocks_.clear();
}

bool WeakGlobalMemory::Find(const void* address, size_t bytes, size_t& place) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at < begin || at + bytes > begin + common_.size()) return false;
  place = at - begin;
  return true;
}

}  // namespace sluice::emulator
