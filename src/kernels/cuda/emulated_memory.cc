// Memory operations of emulated threads other than plain loads and stores: fences, atomics, and
// asynchronous copies.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/emulated_bytes.h"
#include "kernels/cuda/emulated_machine.h"
#include "kernels/cuda/emulated_races.h"

namespace sluice::emulator {

// Creates a fiber that only carries order from one address to another. It is created from a fiber
// without order, because a new fiber is ordered after the fiber that creates it.
void* Machine::CreateCarrier() {
  void* const present = races::CurrentFiber();
  races::SwitchTo(unordered_fiber_);
  void* const carrier = races::CreateFiber();
  races::SwitchTo(present);
  return carrier;
}

// Carries the effects of fences and atomics across a barrier, to all threads of the block. An
// atomic after the barrier publishes the accesses that fences before the barrier covered. A fence
// after the barrier covers the accesses that atomics before the barrier made visible.
void Machine::OrderAcrossBarrier(Block& block) {
  bool has_any = false;
  for (const auto& thread : block.threads) has_any |= thread->has_fenced || thread->has_looked;
  if (!has_any) return;
  void* const present = races::CurrentFiber();
  for (const bool of_fences : {true, false}) {
    void* const carrier = CreateCarrier();
    races::SwitchTo(carrier);
    for (const auto& thread : block.threads) {
      if (of_fences && thread->has_fenced) races::Acquire(&thread->fenced);
      if (!of_fences && thread->has_looked) races::Acquire(&thread->looked);
    }
    races::Release(of_fences ? &block.fenced : &block.looked);
    races::SwitchTo(present);
    races::DestroyFiber(carrier);
  }
}

void Machine::Fence() {
  MayYield();
  if (global_.is_watching()) global_.Fence(self_->block, self_->index);
  if (finds_races_) {
    self_->has_fenced = true;
    races::Release(&self_->fenced);
    races::Acquire(&self_->looked);
    races::Acquire(&OwnBlock().looked);
  }
  MayYield();
}

void Machine::BeginAtomic(const void* address, size_t bytes) {
  MayYield();
  if (global_.is_watching()) global_.Refresh(self_->block, self_->index, address, bytes);
}

void Machine::EndAtomic(const void* address, size_t bytes) {
  if (global_.is_watching()) global_.Publish(address, bytes);
  const Block& block = OwnBlock();
  const auto* const at = static_cast<const unsigned char*>(address);
  const bool is_shared = at >= block.shared && at < block.shared + grid_.shared_bytes;
  if (finds_races_ && !is_shared) {
    void* const carrier = CreateCarrier();
    races::SwitchTo(carrier);
    races::Acquire(&block.fenced);
    races::Acquire(&self_->fenced);
    races::Release(address);
    races::Acquire(address);
    races::Release(&self_->looked);
    races::SwitchTo(self_->race_fiber);
    races::DestroyFiber(carrier);
    self_->has_looked = true;
  }
  MayYield();
}

void Machine::ReadPastCache(const void* address, size_t bytes) {
  if (global_.is_watching()) global_.Refresh(self_->block, self_->index, address, bytes);
}

void Machine::NoteRead(const void* address, int bytes) {
  if (finds_races_) races::Read(address, bytes);
}

Machine::CopyFiber& Machine::FiberOf(Thread& thread, uint64_t group) {
  constexpr uint64_t kFree = ~uint64_t{0};
  CopyFiber* free = nullptr;
  for (auto& fiber : thread.copy_fibers) {
    if (fiber->group == group) return *fiber;
    if (fiber->group == kFree) free = fiber.get();
  }
  if (free == nullptr) {
    thread.copy_fibers.push_back(
        std::make_unique<CopyFiber>(CopyFiber{races::CreateFiber(), kFree, 0, 0}));
    free = thread.copy_fibers.back().get();
  }
  free->group = group;
  return *free;
}

void Machine::AsyncCopy16(void* shared, const void* global, bool is_valid) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 ||
      (is_valid && reinterpret_cast<uintptr_t>(global) % 16 != 0)) {
    Die("an asynchronous copy is not aligned to 16 bytes");
  }
  Thread& self = *self_;
  self.copies.push_back({shared, global, is_valid, false, self.next_group});
  if (finds_races_) races::Release(&FiberOf(self, self.next_group).issued);
  // Some copies complete immediately, the others at some time before a thread waits for them.
  if (is_seeded() && Chance(4)) Land(self, self.copies.back());
}

void Machine::AsyncCommit() {
  ++self_->next_group;
}

void Machine::AsyncWait(int pending) {
  MayYield();
  Thread& self = *self_;
  const auto is_waited_for = [&](const Copy& copy) {
    return copy.group + static_cast<uint64_t>(pending) < self.next_group;
  };
  size_t count = 0;
  while (count < self.copies.size() && is_waited_for(self.copies[count])) {
    Copy& copy = self.copies[count++];
    if (!copy.has_landed) Land(self, copy);
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<ptrdiff_t>(count));
  if (finds_races_) {
    for (auto& fiber : self.copy_fibers) {
      if (fiber->group == ~uint64_t{0} ||
          fiber->group + static_cast<uint64_t>(pending) >= self.next_group)
        continue;
      races::Acquire(&fiber->landed);
      fiber->group = ~uint64_t{0};
    }
  }
  MayYield();
}

void Machine::Land(Thread& thread, Copy& copy) {
  if (finds_races_) {
    CopyFiber& fiber = FiberOf(thread, copy.group);
    void* const present = races::CurrentFiber();
    races::SwitchTo(fiber.fiber);
    races::Acquire(&fiber.issued);
    if (copy.is_valid) races::Read(copy.global, 16);
    races::Write(copy.shared, 16);
    races::Release(&fiber.landed);
    races::SwitchTo(present);
  }
  constexpr unsigned char kZeros[16] = {};
  CopyBytes(copy.shared, copy.is_valid ? copy.global : kZeros, 16);
  copy.has_landed = true;
}

// Completes some copies of a random thread.
void Machine::LandSome() {
  Block& block = blocks_[random_() % used_blocks_];
  if (!block.tiles.empty() && Chance(4)) LandTile(block);
  Thread& thread = *block.threads[random_() % grid_.threads];
  for (Copy& copy : thread.copies) {
    if (!copy.has_landed && Chance(2)) Land(thread, copy);
  }
}

}  // namespace sluice::emulator
