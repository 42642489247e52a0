// Runs kernels in PTX, thread by thread and instruction by instruction. Global memory is the host's
// memory; only one block runs at a time, so there is one shared memory. A thread runs until it
// waits for its warp or its block; asynchronous copies are done when a thread waits for them.
// Operations of a whole warp (shuffles, votes, matrix products) are done when all 32 lanes have
// reached them.
//
// Sums of matrix products are rounded to F32 after each product, in the order of the columns: the
// ISA does not specify order and precision.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ptx_counters.h"
#include "ptx_program.h"

namespace sluice::ptx {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

class Machine {
 public:
  // Ends the program with a message if the kernel does something that is not allowed.
  void Run(const Kernel& kernel, const Extent& grid, unsigned threads, unsigned shared_bytes,
           const void* args, uint64_t args_bytes);
  int64_t num_instructions() const { return num_instructions_; }
  // Returns the counts by the name of the kernel.
  const std::map<std::string, Counts>& counts() const { return counts_; }

 private:
  static constexpr unsigned kLanes = 32;
  enum class State : uint8_t { kRunning, kAtWarp, kAtBarrier, kDone };
  struct Copy {
    uint64_t shared;
    uint64_t global;
    uint64_t bytes;  // the others of the 16 become zeros
    uint64_t group;
  };
  struct Thread {
    State state = State::kRunning;
    uint32_t next = 0;  // instruction
    std::vector<uint64_t> registers;
    std::vector<unsigned char> local;
    std::vector<Copy> copies;
    uint64_t group = 0;
  };

  void RunBlock();
  void RunThread(unsigned index);
  void Execute(const Instruction& in, Thread& thread);
  bool RunWarp(unsigned warp);
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
  [[noreturn]] void Die(const Instruction& in, const char* what) const;

  const Kernel* kernel_ = nullptr;
  Extent grid_, block_;
  unsigned num_threads_ = 0;
  unsigned index_ = 0;  // of the thread that runs
  const unsigned char* args_ = nullptr;
  uint64_t args_bytes_ = 0;
  std::vector<unsigned char> shared_;
  std::vector<Thread> threads_;
  int64_t num_instructions_ = 0;
  std::map<std::string, Counts> counts_;
  Counts* count_ = nullptr;             // of the kernel that runs
  std::vector<WarpRequests> requests_;  // by warp of the block
  int64_t in_flight_ = 0;               // bytes of the block's copies
};

}  // namespace sluice::ptx
