// Simulates a weakly ordered piece of global memory: a thread's store becomes visible to other
// blocks only after that thread calls a fence. A block keeps seeing old values until one of its
// threads calls a fence, except for reads past its cache (__ldcg) and atomics.
//
// Every block has its own copy of the piece. The running block's copy is placed at the piece's
// address, so kernels load and store normally. A thread's stores are found by comparing memory, so
// watch only pieces of a few kilobytes, in tests. The simulation is stricter than CUDA in one
// point: a fence covers only the stores of the thread that calls it, not the stores that a barrier
// ordered before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::emulator {

// Thread safety: one thread at a time.
class WeakGlobalMemory {
 public:
  // Starts watching `bytes` bytes at `memory`; 0: stops watching. Ownership: the memory stays the
  // caller's.
  void Watch(void* memory, size_t bytes);
  bool is_watching() const { return !common_.empty(); }

  // Begins a launch of blocks of `threads` threads. `blocks` blocks run concurrently.
  void Begin(size_t blocks, size_t threads);
  // Starts a new block at place `block`. It replaces a block whose stores may not have arrived yet.
  void BeginBlock(size_t block);
  // Called before a thread of the block runs: copies the block's view to the memory's address.
  void Show(size_t block);
  // Called after a thread has run: differences from the block's view are the stores of this thread.
  void TakeStores(size_t block, size_t thread);
  // Ends the launch: all stores arrive.
  void End();

  // Called by the running thread.
  void Fence(size_t block, size_t thread);
  // Updates the block's view from the common values, but keeps the block's own pending stores.
  void Refresh(size_t block, size_t thread, const void* address, size_t bytes);
  // Makes the current value of these bytes visible to all blocks immediately.
  void Publish(const void* address, size_t bytes);

 private:
  struct Store {
    size_t place;
    unsigned char value;
  };
  struct Block {
    std::vector<unsigned char> seen;
    // Stores of each thread that are not yet visible to other blocks.
    std::vector<std::vector<Store>> stores;
  };
  // Returns whether the whole range is watched, and sets its offset.
  bool Find(const void* address, size_t bytes, size_t& place) const;

  unsigned char* memory_ = nullptr;
  std::vector<unsigned char> common_;  // values that all blocks may see
  std::vector<Block> blocks_;
  std::vector<Store> left_;      // pending stores of blocks that have ended
  size_t present_ = ~size_t{0};  // the block whose view is at the memory's address
};

}  // namespace sluice::emulator
