// What blocks see of a piece of global memory while other blocks write it, as weakly ordered as a
// device may: a thread's store reaches other blocks when that thread has called a fence, and a
// block goes on seeing what it saw until one of its threads has called a fence, except where it
// reads past its cache (__ldcg) or by an atomic.
//
// Every block has its own copy of the piece; the one that runs has it at the piece's address, so
// that kernels load and store as ever. What a thread stored is found by comparing. So this is for
// pieces of some kilobytes, in tests. It is stricter than CUDA in one point: a fence covers the
// stores of its own thread alone, not those that a barrier ordered before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::emulator {

// Thread safety: one thread at a time.
class WeakGlobalMemory {
 public:
  // Nothing is watched where `bytes` is 0. The memory stays the caller's.
  void Watch(void* memory, size_t bytes);
  bool is_watching() const { return !common_.empty(); }

  // A launch of blocks of so many threads, so many of them at a time.
  void Begin(size_t blocks, size_t threads);
  // A new block runs in place of an old one, whose stores may still be on their way.
  void BeginBlock(size_t block);
  // A thread of the block runs now: brings the block's copy to the memory's address.
  void Show(size_t block);
  // The thread that ran stops: what differs from the block's copy is what it stored.
  void TakeStores(size_t block, size_t thread);
  // All that was stored is there.
  void End();

  // By the thread that runs.
  void Fence(size_t block, size_t thread);
  // Brings the common value, with the block's own stores over it, to the memory itself.
  void Refresh(size_t block, size_t thread, const void* address, size_t bytes);
  // The memory's value there becomes everybody's at once.
  void Publish(const void* address, size_t bytes);

 private:
  struct Store {
    size_t place;
    unsigned char value;
  };
  struct Block {
    std::vector<unsigned char> seen;
    std::vector<std::vector<Store>> stores;  // of each thread, on their way
  };
  // Whether all of it is watched, and where.
  bool Find(const void* address, size_t bytes, size_t& place) const;

  unsigned char* memory_ = nullptr;
  std::vector<unsigned char> common_;  // what has reached everybody
  std::vector<Block> blocks_;
  std::vector<Store> left_;      // stores of blocks that ended
  size_t present_ = ~size_t{0};  // whose copy is at the memory's address
};

}  // namespace sluice::emulator
