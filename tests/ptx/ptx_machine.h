// Runs kernels in PTX, thread by thread and instruction by instruction. Global memory is the host's
// memory; only one block runs at a time, so there is one shared memory. A thread runs until it
// waits for its warp, its block or an mbarrier; asynchronous copies are done when a thread waits
// for them, and those that an mbarrier counts one by one, and only when no thread can go on without
// them. A thread's first attempt to wait for an mbarrier's unfinished phase fails, as it may on a
// GPU. Until a copy that an mbarrier counts is done, its bytes in shared memory must not be used.
// Operations of a whole warp (shuffles, votes, matrix products) are done when all 32 lanes have
// reached them.
//
// A launch may begin before earlier kernels end (programmatic dependent launch). Then each thread
// must wait for these kernels (griddepcontrol.wait) before it ends, before it writes global memory,
// and before it reads global memory other than the constant pieces in Overlap.
//
// Matrix products of warpgroups (wgmma) compute at once, but waits for them end only when no thread
// can go on without that. Until a thread has waited for their group, it must not use their
// registers, and nobody may write what they read in shared memory. Between other uses of these
// registers and a product there must be a fence, and between the threads' own stores to shared
// memory and a product that reads them a fence of proxies.
//
// Sums of matrix products are rounded to F32 after each product, in the order of the columns: the
// ISA specifies neither order nor precision.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptx_counters.h"
#include "ptx_program.h"

namespace sluice::ptx {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

// For a launch that begins before earlier kernels end: pieces of global memory (address, bytes)
// that no kernel writes.
struct Overlap {
  std::vector<std::pair<uint64_t, uint64_t>> constants;
};

class Machine {
 public:
  // Ends the program with a message if the kernel does something that is not allowed. `overlap`:
  // null if the kernel begins after all earlier ones.
  void Run(const Kernel& kernel, const Extent& grid, unsigned threads, unsigned shared_bytes,
           const void* args, uint64_t args_bytes, const Overlap* overlap = nullptr);
  // Refuses longer sums of E4M3 products of warpgroups, whose precision is lower than F32.
  void LimitE4m3Sums(uint32_t most_products) { most_e4m3_products_ = most_products; }
  int64_t num_instructions() const { return num_instructions_; }
  // Returns the counts by the name of the kernel.
  const std::map<std::string, Counts>& counts() const { return counts_; }

 private:
  static constexpr unsigned kLanes = 32;
  enum class State : uint8_t { kRunning, kAtWarp, kAtBarrier, kAtMbarrier, kDone };
  struct Copy {
    uint64_t shared;
    uint64_t global;
    uint64_t bytes;  // bytes to copy; the rest of the 16 bytes become zeros
    uint64_t group;
  };
  // A part of a bulk copy: zeros at `shared`, then a part of them replaced.
  struct CopiedPiece {
    uint64_t shared, all_bytes;
    uint64_t global, skipped, bytes;  // `bytes` of `global` go to `shared` + `skipped`
  };
  // An asynchronous copy to a piece of shared memory, which completes bytes of an mbarrier.
  struct BulkCopy {
    uint64_t shared, bytes, mbarrier;
    const Instruction* by;
    std::vector<CopiedPiece> pieces;
  };
  // What a product of a warp reads in shared memory.
  struct ProductRead {
    uint64_t begin, end;
    uint32_t group;
  };
  // Groups of a warp's products, numbered from 1.
  struct WarpProducts {
    uint32_t group = 1, completed = 0;
    bool is_open = false;  // whether `group` has products
    int64_t count = 0;
    std::vector<ProductRead> reads;
  };
  // An object in shared memory. A phase ends when neither arrivals nor bytes are pending.
  struct Mbarrier {
    uint64_t count = 0, pending = 0;
    int64_t pending_bytes = 0;
    uint64_t phase = 0;
    unsigned by = 0;         // the thread that initialised it
    bool is_fenced = false;  // asynchronous copies see it
  };
  static constexpr unsigned kBarriers = 16;  // barriers per block
  struct Thread {
    State state = State::kRunning;
    uint32_t next = 0;  // index of the next instruction
    std::vector<uint64_t> registers;
    std::vector<unsigned char> local;
    std::vector<Copy> copies;
    uint64_t group = 0;
    bool has_awaited = false;            // earlier kernels
    uint64_t barrier = 0;                // at which it waits
    uint64_t barrier_threads = 0;        // that meet there; 0: all of the block
    const Instruction* tried = nullptr;  // the wait for an mbarrier that failed
    // In kernels with products of warpgroups, by register: the group of products that writes it,
    // when it was last used otherwise, and the length of its sum.
    std::vector<uint32_t> written_by;
    std::vector<uint64_t> used_at;
    std::vector<uint32_t> summed;  // products in the sum
    uint64_t time = 0, fenced_at = 0;
  };

  void RunBlock();
  void RunThread(unsigned index);
  // Resumes threads whose barrier is complete. Returns whether there are any.
  bool EndBarriers();
  // Does one of the bulk copies under way. Returns whether there was any.
  bool EndBulkCopy();
  // Checks that the warps of each warpgroup did the same number of products.
  void CheckProductsOfGroups();
  bool EndMbarrierWaits();
  // Enters a barrier, with the operands of the instruction.
  void Enter(const Instruction& in, Thread& thread);
  Mbarrier& MbarrierAt(const Instruction& in, const Thread& thread, uint64_t place);
  void Complete(const Instruction& in, Mbarrier& mbarrier, uint64_t arrivals, int64_t bytes);
  void ExecuteMbarrier(const Instruction& in, Thread& thread);
  void StartBulkCopy(const Instruction& in, Thread& thread);
  void StartTensorCopy(const Instruction& in, Thread& thread);
  void Start(const Instruction& in, Thread& thread, BulkCopy copy);
  // Makes the mbarriers that the running thread has initialized visible to asynchronous copies.
  void FenceMbarriers();
  // Does the same, also for what the thread has stored.
  void FenceProxies();
  // Checks an access of shared memory by the running thread, and records a write.
  void UseShared(const Instruction& in, uint64_t place, uint64_t bytes, bool writes);
  void CheckNotProductRead(const Instruction& in, uint64_t place, uint64_t bytes) const;
  void CheckNotCopied(const Instruction& in, uint64_t place, uint64_t bytes) const;
  // Checks the registers of an instruction other than a product.
  void UseRegisters(const Instruction& in, Thread& thread);
  void EndProducts(unsigned warp);
  void MultiplyGroup(const Instruction& in, unsigned warp);
  // Reads a row of an operand, 32 bytes, through a matrix descriptor.
  void ReadOperandRow(const Instruction& in, unsigned warp, uint64_t descriptor, unsigned row,
                      float* numbers);
  void WaitForProducts(const Instruction& in, unsigned warp);
  void Elect(const Instruction& in, unsigned warp);
  void StoreMatrices(const Instruction& in, unsigned warp);
  void Execute(const Instruction& in, Thread& thread);
  // Does an operation of the whole warp if all its lanes have reached it: a wait for products, or
  // any other. Returns true if the lanes can continue.
  bool RunWarp(unsigned warp, bool waits_for_products);
  // Ends the wait for products of one warp, when nothing else can go on. Returns whether there was
  // any.
  bool EndProductWait();
  void ExecuteWarp(const Instruction& in, unsigned warp);
  void Shuffle(const Instruction& in, unsigned warp);
  void Vote(const Instruction& in, unsigned warp);
  void LoadMatrices(const Instruction& in, unsigned warp);
  void Multiply(const Instruction& in, unsigned warp);
  uint64_t Special(uint64_t which) const;
  uint64_t Value(const Thread& thread, const Operand& operand, Type type) const;
  uint64_t Raw(const Thread& thread, const Operand& operand) const;
  static void Set(Thread& thread, const Operand& operand, uint64_t value);
  unsigned char* Address(const Instruction& in, Thread& thread, Space space, uint64_t place,
                         uint64_t bytes, uint64_t alignment);
  void Load(const Instruction& in, Thread& thread);
  void Store(const Instruction& in, Thread& thread);
  void Atomic(const Instruction& in, Thread& thread);
  void Wait(Thread& thread, uint64_t pending);
  // Records an access of the running thread, unless it is to the thread's own memory or to the
  // arguments.
  void Note(const Instruction& in, Space space, uint64_t address, uint64_t bytes);
  // Checks a global memory access in a launch that overlaps others.
  void CheckOverlap(const Instruction& in, const Thread& thread, uint64_t place, uint64_t bytes,
                    bool reads) const;
  [[noreturn]] void Die(const Instruction& in, const char* what) const;

  const Kernel* kernel_ = nullptr;
  const Overlap* overlap_ = nullptr;
  Extent grid_, block_;
  unsigned num_threads_ = 0;
  unsigned index_ = 0;                   // of the thread that runs
  const unsigned char* args_ = nullptr;  // aligned for tensor maps
  uint64_t args_bytes_ = 0;
  std::vector<unsigned char> args_copy_, shared_;
  std::vector<Thread> threads_;
  std::vector<BulkCopy> bulk_copies_;
  std::map<uint64_t, Mbarrier> mbarriers_;  // by address in shared memory
  uint64_t arrivals_[kBarriers] = {};       // of threads that did not wait
  std::vector<WarpProducts> products_;      // by warp
  // By 16 bytes of shared memory: 1 + the thread that has written them since its last fence of
  // proxies; 0: none.
  std::vector<uint32_t> unfenced_;
  uint32_t random_ = 1;  // chooses the copy that is done next
  int64_t num_instructions_ = 0;
  uint32_t most_e4m3_products_ = ~0u;
  std::map<std::string, Counts> counts_;
  Counts* count_ = nullptr;             // counts of the running kernel
  std::vector<WarpRequests> requests_;  // by warp of the block
  int64_t in_flight_ = 0;               // bytes of the block's asynchronous copies in flight
};

}  // namespace sluice::ptx
