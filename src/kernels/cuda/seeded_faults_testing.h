// Small kernels in the style of the real ones, each either correct or with one synchronization
// fault that a GPU would rarely show. The emulator's seeded orders and its race detection must find
// the fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/emulated_queue.h"
#include "kernels/cuda/device_code.h"

namespace sluice::emulated::faults {

enum class Fault : uint8_t {
  kNone,
  // Faults of a pipeline of asynchronous copies:
  kCopyBeforeBarrier,  // the next copies start while other warps still read the slot that they fill
  kWaitTooFew,         // one more group may be in progress than the stage allows
  kNoBarrier,          // a thread reads what another thread copied, without a barrier in between
  // Faults of a sum by several blocks:
  kNoFence,        // parts are written without a fence before the atomic
  kFenceOfOne,     // only one thread calls the fence, before the others have written
  kFenceTooLate,   // the fence comes after the atomic
  kReadsCached,    // the last block reads through its cache, which may be stale
  kNoFenceToRead,  // the last block bypasses its cache, but without a fence after the atomic
  kNoWarpBarrier,  // lanes exchange elements through shared memory without a warp barrier
  kBlocksOverlap,  // two blocks write one number
};

constexpr unsigned kThreads = 64;
constexpr int kStages = 3, kSteps = 12;

struct PipelineArgs {
  const uint32_t* from;  // [kSteps, kThreads, 4]
  uint32_t* sums;        // [kThreads]: sums over the data that the opposite thread copied
};

// All threads copy and read each stage. Every thread reads data that a thread of another warp
// copied.
template <Fault kFault>
void Pipeline(PipelineArgs args) {
  auto* shared = reinterpret_cast<uint32_t*>(SharedMemory());
  const unsigned thread = threadIdx.x, other = kThreads - 1 - thread;
  const auto copy = [&](int step) {
    if (step < kSteps) {
      AsyncCopy16(shared + (step % kStages * kThreads + thread) * 4,
                  args.from + (step * kThreads + thread) * 4, true);
    }
    AsyncCommit();
  };
  for (int step = 0; step < kStages - 1; ++step) copy(step);
  uint32_t sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    AsyncWait<kFault == Fault::kWaitTooFew ? kStages - 1 : kStages - 2>();
    if constexpr (kFault == Fault::kCopyBeforeBarrier) copy(step + kStages - 1);
    if constexpr (kFault != Fault::kNoBarrier) __syncthreads();
    if constexpr (kFault != Fault::kCopyBeforeBarrier) copy(step + kStages - 1);
    for (int i = 0; i < 4; ++i)
      sum = sum * 31 + shared[(step % kStages * kThreads + other) * 4 + i];
  }
  AsyncWait<0>();
  args.sums[thread] = sum;
}

constexpr unsigned kParts = 4;

struct SplitArgs {
  uint32_t* parts;   // [kParts, kThreads]
  unsigned* counts;  // [1]: 0 before and after
  uint32_t* sums;    // [kThreads]
};

// Every block writes its part; the last block to finish adds them.
template <Fault kFault>
void SplitSum(SplitArgs args) {
  const unsigned thread = threadIdx.x;
  const auto fence_at_first = [&] {
    if constexpr (kFault == Fault::kFenceOfOne) {
      if (thread == 0) __threadfence();
    }
  };
  fence_at_first();
  args.parts[blockIdx.x * kThreads + thread] = (blockIdx.x + 1) * 1000 + thread;
  if constexpr (kFault != Fault::kNoFence && kFault != Fault::kFenceOfOne &&
                kFault != Fault::kFenceTooLate)
    __threadfence();
  __syncthreads();
  auto* is_last = reinterpret_cast<unsigned*>(SharedMemory());
  if (thread == 0) *is_last = atomicAdd(args.counts, 1u) == kParts - 1;
  __syncthreads();
  if constexpr (kFault == Fault::kFenceTooLate) __threadfence();
  if (*is_last == 0) return;
  if constexpr (kFault != Fault::kReadsCached && kFault != Fault::kNoFenceToRead) __threadfence();
  uint32_t sum = 0;
  for (unsigned part = 0; part < kParts; ++part) {
    const uint32_t* from = args.parts + part * kThreads + thread;
    sum += kFault == Fault::kReadsCached ? *from : __ldcg(from);
  }
  args.sums[thread] = sum;
  if (thread == 0) atomicExch(args.counts, 0u);
}

struct ExchangeArgs {
  uint32_t* numbers;  // [2, 32]
};

// Reverses the elements of a warp.
template <Fault kFault>
void Exchange(ExchangeArgs args) {
  auto* shared = reinterpret_cast<uint32_t*>(SharedMemory());
  const unsigned block = kFault == Fault::kBlocksOverlap ? 0 : blockIdx.x;
  shared[threadIdx.x] = args.numbers[block * 32 + threadIdx.x];
  if constexpr (kFault != Fault::kNoWarpBarrier) __syncwarp();
  args.numbers[block * 32 + threadIdx.x] = shared[31 - threadIdx.x];
}

// A stream that runs launches in its queue.
struct FaultStream {
  EmulatedQueue queue;
  LaunchFailure failure;
  StreamHandle handle{&queue, &failure};
};

// Each function below runs one kernel and returns whether its result was correct.
template <Fault kFault>
bool RunPipeline() {
  std::vector<uint32_t> from(size_t{kSteps} * kThreads * 4 + 4), sums(kThreads), expected(kThreads);
  // Copies need global addresses that are multiples of 16.
  uint32_t* const aligned =
      from.data() + (4 - reinterpret_cast<uintptr_t>(from.data()) / 4 % 4) % 4;
  for (uint32_t i = 0; i < kSteps * kThreads * 4; ++i) aligned[i] = i * 2654435761u;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    for (unsigned step = 0; step < kSteps; ++step) {
      for (unsigned i = 0; i < 4; ++i)
        expected[thread] =
            expected[thread] * 31 + aligned[(step * kThreads + kThreads - 1 - thread) * 4 + i];
    }
  }
  FaultStream stream;
  Launch<Pipeline<kFault>>(stream.handle, "pipeline",
                           {.threads = kThreads, .shared_bytes = kStages * kThreads * 16},
                           PipelineArgs{aligned, sums.data()});
  stream.queue.RunAll();
  return sums == expected;
}

// `watches`: whether to simulate weakly ordered global memory.
template <Fault kFault>
bool RunSplitSum(bool watches) {
  std::vector<uint32_t> memory(size_t{kParts} * kThreads + 1), sums(kThreads), expected(kThreads);
  for (unsigned thread = 0; thread < kThreads; ++thread)
    expected[thread] = 1000 * (1 + 2 + 3 + 4) + kParts * thread;
  if (watches) emulator::WatchGlobal(memory.data(), memory.size() * sizeof(uint32_t));
  FaultStream stream;
  Launch<SplitSum<kFault>>(
      stream.handle, "split_sum", {.grid_x = kParts, .threads = kThreads, .shared_bytes = 16},
      SplitArgs{memory.data(), memory.data() + kParts * kThreads, sums.data()});
  stream.queue.RunAll();
  if (watches) emulator::WatchGlobal(nullptr, 0);
  return sums == expected && memory.back() == 0;
}

template <Fault kFault>
bool RunExchange() {
  std::vector<uint32_t> numbers(64), expected(64);
  for (uint32_t i = 0; i < 64; ++i) {
    numbers[i] = i;
    expected[i] = i / 32 * 32 + 31 - i % 32;
  }
  FaultStream stream;
  Launch<Exchange<kFault>>(stream.handle, "exchange",
                           {.grid_x = 2, .threads = 32, .shared_bytes = 128},
                           ExchangeArgs{numbers.data()});
  stream.queue.RunAll();
  return numbers == expected;
}

}  // namespace sluice::emulated::faults
