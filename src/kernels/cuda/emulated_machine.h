// The scheduler of emulated kernels: decides which thread of which block runs next, and when
// threads wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include "device/plain_tensor_map.h"
#include "kernels/cuda/emulated_global.h"
#include "kernels/cuda/emulator.h"

namespace sluice::emulator {

// Thread safety: one host thread. Kernel threads run on it as fibers; only they call BlockBarrier
// and the methods declared after it.
class Machine {
 public:
  ~Machine();

  void Run(const char* name, const Grid& grid, const std::function<void()>& body);

  void BlockBarrier();
  void WarpBarrier();
  unsigned char* SharedMemory();
  void Collective(const char* what, const void* input, int input_bytes, void* output,
                  int output_bytes, Combine combine);
  // Like Collective, for the 64 lanes of a wave, which is two warps. If combine is nullptr, every
  // lane gets the inputs of all lanes.
  void WaveCollective(const void* input, int input_bytes, void* output, int output_bytes,
                      Combine combine);
  void AsyncCopy16(void* shared, const void* global, bool is_valid);
  void AsyncCommit();
  void AsyncWait(int pending);
  // Copies of tiles and products of warpgroups (warpgroup_code.h).
  uint32_t SharedAddress(const void* shared);
  void InitMbarrier(uint32_t address, int count);
  void ArriveAtMbarrier(uint32_t address, int bytes);
  void AwaitMbarrier(uint32_t address, int parity);
  void CopyTile(uint32_t shared, const void* map, int column, int row, uint32_t mbarrier);
  void MultiplyGroup(float* d, int columns, uint64_t a, uint64_t b, bool accumulates);
  void CommitProducts();
  void AwaitProducts(int pending);
  void Fence();
  void BeginAtomic(const void* address, size_t bytes);
  void EndAtomic(const void* address, size_t bytes);
  void ReadPastCache(const void* address, size_t bytes);
  void NoteRead(const void* address, int bytes);
  [[noreturn]] void Die(const char* what) const;

  Position& position() { return position_; }
  void set_order(Order order, uint64_t seed);
  void set_finds_races(bool finds) { finds_races_ = finds; }
  void Watch(void* memory, size_t bytes) { global_.Watch(memory, bytes); }
  void LeaveOutBarrier(std::string kernel, int number);
  bool has_left_out_barrier() const { return has_left_out_; }

 private:
  static constexpr unsigned kLanes = 32;
  static constexpr int kMostBytes = 64;  // maximum bytes per lane of a collective operation

  struct Copy {
    void* shared;
    const void* global;
    bool is_valid;
    bool has_landed;
    uint64_t group;
  };
  // The asynchronous copies of one group of a thread. For race detection, they have their own
  // fiber.
  struct CopyFiber {
    void* fiber;
    uint64_t group;
    char issued, landed;  // addresses for races::Acquire and Release
  };
  // A product of a warpgroup in progress: this thread's part of it.
  struct Product {
    float* d;
    int columns;
    uint64_t a, b;
    bool accumulates;
    uint64_t group;
  };
  // An object in shared memory. A phase ends when neither arrivals nor bytes are pending.
  struct Mbarrier {
    int count, pending;
    int64_t pending_bytes;
    uint64_t phase;
  };
  struct TileCopy {
    uint32_t shared, mbarrier;
    int column, row;
    device::PlainTensorMap map;
  };
  struct Thread {
    boost::context::fiber fiber;  // where the thread resumes
    unsigned block = 0;           // index in blocks_ of the thread's block
    unsigned index = 0;
    bool is_done = true;
    int num_barriers = 0;           // number of barriers reached; only counted if one is left out
    std::vector<Copy> copies;       // in progress, the oldest first
    uint64_t next_group = 0;        // the group that the next commit ends
    std::vector<Product> products;  // in progress, the oldest first
    uint64_t product_group = 0;     // the group that the next commit of products ends
    bool awaits = false;            // a phase of the mbarrier at `awaited`
    uint32_t awaited = 0;
    // State of race detection.
    void* race_fiber = nullptr;
    std::vector<std::unique_ptr<CopyFiber>> copy_fibers;
    bool has_fenced = false, has_looked = false;
    char fenced = 0, looked = 0;  // addresses for races::Acquire and Release
  };
  struct Warp {
    const char* what = nullptr;
    unsigned num_lanes = 0;  // not ended
    unsigned num_arrived = 0;
    uint32_t ready = 0;  // lanes that can run
    // The number of the current collective operation. The arrays keep the data of this operation
    // and of the previous one, because slow lanes may not have read the previous results yet.
    uint64_t generation = 0;
    char order[2] = {};  // addresses for races::Acquire and Release, used in alternate generations
    alignas(16) unsigned char inputs[2][kLanes * kMostBytes];
    alignas(16) unsigned char outputs[2][kLanes * kMostBytes];
  };
  // Two warps that an AMD GPU runs as one.
  struct Wave {
    unsigned num_arrived = 0;
    uint64_t generation = 0;
    alignas(16) unsigned char inputs[2][2 * kLanes * kMostBytes];
    alignas(16) unsigned char outputs[2][2 * kLanes * kMostBytes];
  };
  // A slot for a running block.
  struct Block {
    Index3 index;
    unsigned num_alive = 0, num_at_barrier = 0;
    uint64_t barrier = 0;
    uint32_t ready = 0;  // warps with lanes that can run
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Warp> warps;
    std::vector<Wave> waves;
    unsigned char* shared = nullptr;
    std::map<uint32_t, Mbarrier> mbarriers;  // by address in shared memory
    std::vector<TileCopy> tiles;             // in progress
    uint64_t run = 0;                        // number of blocks that have run in this slot
    // Addresses that only races::Acquire and races::Release use. arrived[i]: barriers with number %
    // 2 == i; each thread releases it when it arrives and acquires it when it leaves. There are
    // two, because a thread may reach the next barrier before others have left this one.
    // through[i]: blocks with `run` % 2 == i; each thread releases it at its end, and the threads
    // of the slot's next block acquire it. fenced: accesses covered by fences before the last
    // barrier; the barrier releases it, atomics acquire it. looked: writes that atomics made
    // visible before the last barrier; the barrier releases it, fences acquire it.
    char arrived[2] = {}, through[2] = {}, fenced = 0, looked = 0;
  };

  void CheckGrid(const Grid& grid) const;
  void AllocateShared(Block& block, unsigned bytes);
  void CheckGuards(const Block& block) const;
  void Begin(Block& block, Index3 index);
  Index3 BlockAt(uint64_t number) const;
  unsigned BlocksAtATime(uint64_t blocks) const;
  bool PickThread();
  void Resume(Thread& thread);
  void Body(Thread& thread);
  void EndFibers();
  void Yield();
  void MayYield();
  void MakeReady(Thread& thread);
  void EndThread(const Thread& thread);
  void PassBarrier(Block& block);
  void* CreateCarrier();
  void OrderAcrossBarrier(Block& block);
  void Land(Thread& thread, Copy& copy);
  void LandSome();
  Mbarrier& MbarrierAt(Block& block, uint32_t address);
  void CompleteMbarrier(Block& block, uint32_t address, int arrivals, int64_t bytes);
  bool LandTile(Block& block);
  bool LandAnyTile();
  void Multiply(const Product& product);
  void EndProducts(Thread& thread, uint64_t group);
  CopyFiber& FiberOf(Thread& thread, uint64_t group);
  unsigned PickBit(uint32_t mask);
  bool Chance(unsigned one_in) { return random_() % one_in == 0; }
  bool is_seeded() const { return order_ == Order::kSeeded; }
  Block& OwnBlock() { return blocks_[self_->block]; }
  Warp& OwnWarp() { return OwnBlock().warps[self_->index / kLanes]; }

  const char* name_ = "";
  const std::function<void()>* body_ = nullptr;
  Grid grid_ = {};
  Order order_ = Order::kForward;
  bool finds_races_ = false;
  std::string kernel_without_barrier_;
  int left_out_barrier_ = 0;         // index of the barrier in each thread
  bool leaves_out_barrier_ = false;  // whether this launch leaves out a barrier
  bool has_left_out_ = false;        // since LeaveOutBarrier
  bool ends_ = false;  // whether the machine is being destroyed, and its fibers with it
  std::minstd_rand random_;
  Position position_;
  std::vector<Block> blocks_;  // slots
  unsigned used_blocks_ = 0;   // slots used in this launch
  std::vector<std::unique_ptr<unsigned char[]>> memory_;
  std::vector<uint32_t> block_order_;
  Thread* self_ = nullptr;
  unsigned favoured_block_ = 0, favoured_warp_ = 0;
  WeakGlobalMemory global_;
  void* host_fiber_ = nullptr;
  void* unordered_fiber_ = nullptr;  // ordered before everything
  char begun_ = 0;                   // an address for races::Acquire and Release
  boost::context::fiber scheduler_;
  boost::context::pooled_fixedsize_stack stacks_{size_t{64} << 10};
};

}  // namespace sluice::emulator
