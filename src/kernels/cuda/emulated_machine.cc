#include "kernels/cuda/emulated_machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "kernels/cuda/emulated_bytes.h"
#include "kernels/cuda/emulated_races.h"

namespace sluice::emulator {
namespace {

constexpr unsigned kMostBlocksYZ = 65535;
constexpr unsigned kMostSharedBytes = 99 * 1024;  // minimum over the supported devices
constexpr unsigned kSharedAlignment = 128;
// Guard bytes after a block's shared memory, which no thread may write.
constexpr unsigned kGuardBytes = 128;
constexpr unsigned char kGuard = 0xA5;
// Maximum number of threads and of blocks that run concurrently in seeded orders.
constexpr uint64_t kMostThreads = 1024;
constexpr uint64_t kMostBlocks = 4;

}  // namespace

Machine::~Machine() {
  EndFibers();
}

void Machine::EndFibers() {
  ends_ = true;
  for (Block& block : blocks_) {
    for (auto& thread : block.threads) {
      if (races::kCanFind) {
        // Leaks the fiber, because the race checker could not follow its unwinding.
        static_cast<void>(thread.release());
      } else {
        while (thread->fiber) thread->fiber = std::move(thread->fiber).resume();
      }
    }
  }
  ends_ = false;
}

void Machine::set_order(Order order, uint64_t seed) {
  order_ = order;
  random_.seed(static_cast<std::minstd_rand::result_type>(seed * 2654435761u + 12345));
}

void Machine::LeaveOutBarrier(std::string kernel, int number) {
  kernel_without_barrier_ = std::move(kernel);
  left_out_barrier_ = number;
  has_left_out_ = false;
}

void Machine::Die(const char* what) const {
  fprintf(stderr, "emulated kernel %s, block (%u, %u, %u), thread %u: %s\n", name_,
          position_.block.x, position_.block.y, position_.block.z, position_.thread.x, what);
  abort();
}

void Machine::CheckGrid(const Grid& grid) const {
  if (grid.threads == 0 || grid.threads > 1024 || grid.threads % kLanes != 0)
    Die("a block has 32 to 1024 threads, in whole warps");
  if (grid.x > 0x7FFFFFFFu || grid.y > kMostBlocksYZ || grid.z > kMostBlocksYZ)
    Die("a grid has at most 2^31 - 1 x 65535 x 65535 blocks");
  if (grid.shared_bytes > kMostSharedBytes) Die("a block has at most 99 KiB of shared memory");
}

unsigned Machine::BlocksAtATime(uint64_t blocks) const {
  if (!is_seeded()) return 1;
  const uint64_t most = std::max<uint64_t>(1, kMostThreads / grid_.threads);
  return static_cast<unsigned>(std::min({blocks, most, finds_races_ ? uint64_t{2} : kMostBlocks}));
}

// Blocks are numbered along x first. Seeded orders use a shuffled list.
Index3 Machine::BlockAt(uint64_t number) const {
  const uint64_t count = uint64_t{grid_.x} * grid_.y * grid_.z;
  uint64_t at = number;
  if (order_ == Order::kReverse) at = count - 1 - number;
  if (is_seeded()) at = block_order_[number];
  return {static_cast<unsigned>(at % grid_.x), static_cast<unsigned>(at / grid_.x % grid_.y),
          static_cast<unsigned>(at / grid_.x / grid_.y)};
}

void Machine::AllocateShared(Block& block, unsigned bytes) {
  // Allocated for each launch, with the guard directly after it, so that AddressSanitizer sees
  // accesses beyond the end.
  memory_.push_back(
      std::make_unique<unsigned char[]>(bytes + size_t{kSharedAlignment} + kGuardBytes));
  const auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
  block.shared =
      memory_.back().get() + (kSharedAlignment - address % kSharedAlignment) % kSharedAlignment;
  FillBytes(block.shared + bytes, kGuard, kGuardBytes);
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(block.shared + bytes, kGuardBytes);
#endif
}

void Machine::CheckGuards(const Block& block) const {
#ifdef __SANITIZE_ADDRESS__
  return;  // the sanitizer has checked this, including reads
#endif
  for (unsigned i = 0; i < kGuardBytes; ++i) {
    if (block.shared[grid_.shared_bytes + i] != kGuard)
      Die("a thread wrote behind the block's shared memory");
  }
}

void Machine::Run(const char* name, const Grid& grid, const std::function<void()>& body) {
  name_ = name;
  CheckGrid(grid);
  leaves_out_barrier_ = kernel_without_barrier_ == name;
  grid_ = grid;
  body_ = &body;
  position_.grid = {grid.x, grid.y, grid.z};
  position_.threads = {grid.threads, 1, 1};
  const uint64_t count = uint64_t{grid.x} * grid.y * grid.z;
  if (is_seeded()) {
    block_order_.resize(count);
    for (size_t i = 0; i < count; ++i) block_order_[i] = static_cast<uint32_t>(i);
    std::shuffle(block_order_.begin(), block_order_.end(), random_);
  }
  used_blocks_ = BlocksAtATime(count);
  if (blocks_.size() < used_blocks_) blocks_.resize(used_blocks_);
  if (global_.is_watching()) global_.Begin(used_blocks_, grid.threads);
  for (unsigned i = 0; i < used_blocks_; ++i) AllocateShared(blocks_[i], grid.shared_bytes);
  if (finds_races_) {
    host_fiber_ = races::CurrentFiber();
    if (unordered_fiber_ == nullptr) unordered_fiber_ = races::CreateFiber();
    races::Release(&begun_);
  }
  uint64_t next = 0;
  for (unsigned i = 0; i < used_blocks_; ++i) Begin(blocks_[i], BlockAt(next++));
  unsigned running = used_blocks_;
  while (running > 0) {
    if (is_seeded() && Chance(8)) LandSome();
    if (!PickThread()) {
      if (LandAnyTile()) continue;
      Die("lanes wait for lanes that never arrive, or for an mbarrier's phase that never ends");
    }
    const unsigned place = self_->block;
    Resume(*self_);
    Block& block = blocks_[place];
    if (block.num_alive > 0) continue;
    CheckGuards(block);
    if (!block.tiles.empty()) Die("a block ended with copies of tiles under way");
    if (next < count) {
      if (global_.is_watching()) global_.BeginBlock(place);
      Begin(block, BlockAt(next++));
    } else {
      --running;
    }
  }
  if (global_.is_watching()) global_.End();
#ifdef __SANITIZE_ADDRESS__
  // Without this, if the caller throws, AddressSanitizer would treat frames on the fibers' stacks
  // as unwound.
  EndFibers();
#endif
  if (finds_races_) {
    for (unsigned i = 0; i < used_blocks_; ++i) {
      for (const char& through : blocks_[i].through) races::Acquire(&through);
    }
  }
  memory_.clear();
  self_ = nullptr;
}

void Machine::Begin(Block& block, Index3 index) {
  block.index = index;
  ++block.run;
  // The contents of shared memory are undefined when a block begins.
  FillBytes(block.shared, 0xFF, grid_.shared_bytes);
  if (block.warps.size() < grid_.threads / kLanes) block.warps.resize(grid_.threads / kLanes);
  for (unsigned i = 0; i < grid_.threads / kLanes; ++i) {
    Warp& warp = block.warps[i];
    warp.num_lanes = kLanes;
    warp.num_arrived = 0;
    warp.generation = 0;
    warp.ready = ~0u;
    block.ready |= 1u << i;
  }
  if (block.waves.size() < grid_.threads / kLanes / 2)
    block.waves.resize(grid_.threads / kLanes / 2);
  for (Wave& wave : block.waves) wave.num_arrived = 0;
  for (auto& thread : block.threads) thread->has_fenced = thread->has_looked = false;
  while (block.threads.size() < grid_.threads) block.threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < grid_.threads; ++i) {
    Thread& thread = *block.threads[i];
    thread.block = static_cast<unsigned>(&block - blocks_.data());
    thread.index = i;
    thread.is_done = false;
    thread.num_barriers = 0;
    thread.copies.clear();
    thread.copies.reserve(64);
    thread.next_group = 0;
    thread.products.clear();
    thread.product_group = 0;
    thread.awaits = false;
    if (finds_races_ && thread.race_fiber == nullptr) thread.race_fiber = races::CreateFiber();
    if (!thread.fiber) {
      thread.fiber = boost::context::fiber(std::allocator_arg, stacks_,
                                           [this, &thread](boost::context::fiber&& back) {
                                             scheduler_ = std::move(back);
                                             Body(thread);
                                             return std::move(scheduler_);
                                           });
    }
  }
  block.mbarriers.clear();
  block.num_alive = grid_.threads;
  block.num_at_barrier = 0;
}

// Runs one kernel thread after another in this slot.
void Machine::Body(Thread& thread) {
  while (!ends_) {
    if (finds_races_) {
      races::Acquire(&begun_);
      races::Acquire(&blocks_[thread.block].through[(blocks_[thread.block].run + 1) % 2]);
    }
    (*body_)();
    if (finds_races_) races::Release(&blocks_[thread.block].through[blocks_[thread.block].run % 2]);
    thread.is_done = true;
    Yield();
  }
}

void Machine::Yield() {
  if (finds_races_) races::SwitchTo(host_fiber_);
  scheduler_ = std::move(scheduler_).resume();
}

// A point at which another thread may run.
void Machine::MayYield() {
  if (!is_seeded() || Chance(2)) return;
  MakeReady(*self_);
  Yield();
}

void Machine::MakeReady(Thread& thread) {
  Block& block = blocks_[thread.block];
  block.warps[thread.index / kLanes].ready |= 1u << thread.index % kLanes;
  block.ready |= 1u << thread.index / kLanes;
}

unsigned Machine::PickBit(uint32_t mask) {
  if (order_ == Order::kForward) return static_cast<unsigned>(__builtin_ctz(mask));
  if (order_ == Order::kReverse) return 31u - static_cast<unsigned>(__builtin_clz(mask));
  for (auto skipped = random_() % static_cast<unsigned>(__builtin_popcount(mask)); skipped > 0;
       --skipped)
    mask &= mask - 1;
  return static_cast<unsigned>(__builtin_ctz(mask));
}

// Selects the next thread as `self_`. Seeded orders stay with a warp for a while, so that some
// warps and blocks get far ahead of others.
bool Machine::PickThread() {
  constexpr unsigned kStay = 24;
  const auto is_ready = [this](unsigned block) { return blocks_[block].ready != 0; };
  if (is_seeded()) {
    const bool stays = favoured_block_ < used_blocks_ && is_ready(favoured_block_) &&
                       (blocks_[favoured_block_].ready >> favoured_warp_ & 1u) != 0 &&
                       !Chance(kStay);
    if (!stays) {
      const auto first = static_cast<unsigned>(random_() % used_blocks_);
      unsigned chosen = used_blocks_;
      for (unsigned i = 0; i < used_blocks_; ++i) {
        const unsigned block = (first + i) % used_blocks_;
        if (is_ready(block)) {
          chosen = block;
          break;
        }
      }
      if (chosen == used_blocks_) return false;
      favoured_block_ = chosen;
      favoured_warp_ = PickBit(blocks_[chosen].ready);
    }
  } else {
    if (!is_ready(0)) return false;
    favoured_block_ = 0;
    favoured_warp_ = PickBit(blocks_[0].ready);
  }
  Block& block = blocks_[favoured_block_];
  Warp& warp = block.warps[favoured_warp_];
  const unsigned lane = PickBit(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) block.ready &= ~(1u << favoured_warp_);
  self_ = block.threads[favoured_warp_ * kLanes + lane].get();
  return true;
}

// Runs the thread until it waits or ends.
void Machine::Resume(Thread& thread) {
  position_.block = blocks_[thread.block].index;
  position_.thread = {thread.index, 0, 0};
  if (global_.is_watching()) global_.Show(thread.block);
  if (finds_races_) races::SwitchTo(thread.race_fiber);
  thread.fiber = std::move(thread.fiber).resume();
  if (global_.is_watching()) global_.TakeStores(thread.block, thread.index);
  if (thread.is_done) EndThread(thread);
}

void Machine::EndThread(const Thread& thread) {
  if (!thread.copies.empty()) Die("a thread ended with asynchronous copies under way");
  if (!thread.products.empty()) Die("a thread ended with products under way");
  Block& block = blocks_[thread.block];
  --block.warps[thread.index / kLanes].num_lanes;
  if (--block.num_alive > 0 && block.num_at_barrier == block.num_alive) PassBarrier(block);
}

void Machine::BlockBarrier() {
  if (leaves_out_barrier_ && self_->num_barriers++ == left_out_barrier_) {
    has_left_out_ = true;
    return;
  }
  Block& block = OwnBlock();
  const uint64_t barrier = block.barrier;
  const char* const arrived = &block.arrived[barrier % 2];
  if (finds_races_) races::Release(arrived);
  if (++block.num_at_barrier == block.num_alive) {
    PassBarrier(block);
    // The other threads have not resumed yet. This thread waits for its turn among them.
    if (is_seeded()) MayYield();
  }
  while (block.barrier == barrier) Yield();
  if (finds_races_) races::Acquire(arrived);
}

// Releases the barrier. REQUIRES: all threads alive have reached it.
void Machine::PassBarrier(Block& block) {
  if (finds_races_) OrderAcrossBarrier(block);
  block.num_at_barrier = 0;
  ++block.barrier;
  for (auto& thread : block.threads) {
    if (thread->index < grid_.threads && !thread->is_done && thread.get() != self_)
      MakeReady(*thread);
  }
}

unsigned char* Machine::SharedMemory() {
  return OwnBlock().shared;
}

void Machine::WarpBarrier() {
  Warp& warp = OwnWarp();
  const char* const order = &warp.order[warp.generation % 2];
  if (finds_races_) races::Release(order);
  Collective("__syncwarp", nullptr, 0, nullptr, 0, nullptr);
  if (finds_races_) races::Acquire(order);
}

void Machine::Collective(const char* what, const void* input, int input_bytes, void* output,
                         int output_bytes, Combine combine) {
  const unsigned lane = self_->index % kLanes;
  Block& block = OwnBlock();
  Warp& warp = OwnWarp();
  if (warp.num_lanes != kLanes) Die("a warp's function was called after a lane had ended");
  const uint64_t generation = warp.generation;
  const size_t half = generation % 2;
  if (warp.num_arrived == 0) {
    warp.what = what;
  } else if (warp.what != what && strcmp(warp.what, what) != 0) {
    Die("the lanes of a warp called different functions");
  }
  const auto own = static_cast<size_t>(lane);
  const auto in_bytes = static_cast<size_t>(input_bytes);
  const auto out_bytes = static_cast<size_t>(output_bytes);
  if (in_bytes > kMostBytes || out_bytes > kMostBytes)
    Die("a lane passes or receives too many bytes");
  CopyBytes(warp.inputs[half] + own * in_bytes, input, in_bytes);
  if (++warp.num_arrived == kLanes) {
    if (combine != nullptr) combine(warp.inputs[half], warp.outputs[half]);
    warp.num_arrived = 0;
    ++warp.generation;
    warp.ready |= ~(1u << lane);
    block.ready |= 1u << self_->index / kLanes;
  } else {
    while (warp.generation == generation) Yield();
  }
  if (combine != nullptr) {
    CopyBytes(output, warp.outputs[half] + own * out_bytes, out_bytes);
  } else {
    CopyBytes(output, warp.inputs[half], kLanes * in_bytes);
  }
}

void Machine::WaveCollective(const void* input, int input_bytes, void* output, int output_bytes,
                             Combine combine) {
  const unsigned lane = self_->index % (2 * kLanes), first = self_->index - lane;
  Block& block = OwnBlock();
  if (first + 2 * kLanes > grid_.threads) Die("half a wave called a function of whole waves");
  Wave& wave = block.waves[first / (2 * kLanes)];
  const uint64_t generation = wave.generation;
  unsigned char* const inputs = wave.inputs[generation % 2];
  unsigned char* const outputs = wave.outputs[generation % 2];
  const auto in_bytes = static_cast<size_t>(input_bytes);
  const auto out_bytes = static_cast<size_t>(output_bytes);
  if (in_bytes > kMostBytes || out_bytes > kMostBytes)
    Die("a lane passes or receives too many bytes");
  CopyBytes(inputs + lane * in_bytes, input, in_bytes);
  if (++wave.num_arrived == 2 * kLanes) {
    if (combine != nullptr) combine(inputs, outputs);
    wave.num_arrived = 0;
    ++wave.generation;
    for (unsigned i = 0; i < 2 * kLanes; ++i)
      if (i != lane) MakeReady(*block.threads[first + i]);
  } else {
    while (wave.generation == generation) Yield();
  }
  if (combine != nullptr) {
    CopyBytes(output, outputs + lane * out_bytes, out_bytes);
  } else {
    CopyBytes(output, inputs, 2 * kLanes * in_bytes);
  }
}

}  // namespace sluice::emulator
