#include "kernels/cuda/exchange_columns.h"

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/peer_memory.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::ExchangeColumnsArgs;
using device::ExchangeState;

constexpr unsigned kExchangeThreads = 256;
constexpr int64_t kMostExchangeBlocks = 64;

// Shared memory of a block.
struct ExchangeShared {
  uint32_t is_last;      // whether all other blocks are done
  uint32_t has_stopped;  // 0 at first
};
__device__ ExchangeShared& SharedOfExchange() {
  return *reinterpret_cast<ExchangeShared*>(SharedMemory());
}

// Waits until the flag of every other rank has reached `number`. Returns false if the host has
// ended the wait. Called by all threads of the block, after a barrier.
__device__ bool AwaitRanks(const ExchangeColumnsArgs& args,
                           const uint32_t (*flags)[ExchangeState::kFlagWords], uint32_t number) {
  ExchangeState& state = *args.states[args.rank];
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < args.num_ranks && peer != args.rank) {
    // Compares by difference, because numbers wrap around to 0 after 2^32.
    for (unsigned look = 0; static_cast<int32_t>(LoadFromPeer(flags[peer]) - number) < 0; ++look) {
      if (look % kLooksBeforeStop == kLooksBeforeStop - 1 && LoadFromPeer(args.stop) != 0) {
        StoreForPeer(&state.has_stopped, 1);
        atomicExch(&SharedOfExchange().has_stopped, 1u);
        break;
      }
      PauseForPeer(look);
    }
  }
  __syncthreads();
  return SharedOfExchange().has_stopped == 0;
}

template <typename Unit>
__device__ __forceinline__ Unit CopyOf(const Unit& unit) {
  return unit;
}
// Copies member by member: AMD's compiler would keep a whole vector that is used across the loop
// over ranks in memory.
__device__ __forceinline__ uint4 CopyOf(const uint4& unit) {
  return make_uint4(unit.x, unit.y, unit.z, unit.w);
}

// A thread moves units of a row to all ranks. A block that has stored its rows is done, except the
// last block, which raises the flags and waits for the flags of the other ranks. So any number of
// blocks may run at a time.
template <typename Unit>
__global__ void ExchangeColumnsKernel(ExchangeColumnsArgs args) {
  ExchangeState& state = *args.states[args.rank];
  const int peer = static_cast<int>(threadIdx.x);
  const bool is_others = peer < args.num_ranks && peer != args.rank;
  // Only the last block to finish changes state.number.
  const uint32_t number = state.number + 1;
  if (LoadShared(&state.has_stopped) != 0) return;
  ExchangeShared& shared = SharedOfExchange();
  if (threadIdx.x == 0) shared.has_stopped = 0;
  if (args.waits_first) {
    // Every block raises the flag, because some blocks may start only after others are done.
    if (is_others) StoreForPeer(args.states[peer]->ready[args.rank], number);
    __syncthreads();
    if (!AwaitRanks(args, state.ready, number)) return;
  }
  const int64_t width = args.own_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t row_units = args.row_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t begin = args.begin / static_cast<int64_t>(sizeof(Unit));
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    const int64_t place = args.places == nullptr ? row : args.places[row];
    if (place < 0) continue;
    for (int64_t column = threadIdx.x; column < width; column += blockDim.x) {
      const Unit unit = CopyOf(static_cast<const Unit*>(args.own)[row * width + column]);
      const int64_t to = place * row_units + begin + column;
      if (args.root >= 0) {
        static_cast<Unit*>(args.all[args.root])[to] = CopyOf(unit);
        continue;
      }
      // Each rank sends to a different rank first, so that no link carries all transfers at the
      // same time.
      for (int i = 1; i <= args.num_ranks; ++i) {
        const int rank =
            args.rank + i < args.num_ranks ? args.rank + i : args.rank + i - args.num_ranks;
        static_cast<Unit*>(args.all[rank])[to] = CopyOf(unit);
      }
    }
  }
  FenceForPeers();
  __syncthreads();
  if (threadIdx.x == 0) {
    // The fence before the atomic publishes the stores of the whole block. The one after it makes
    // the last block see the stores of the other blocks.
    FenceForPeers();
    shared.is_last = atomicAdd(&state.arrived, 1u) == gridDim.x - 1 ? 1 : 0;
    FenceForPeers();
  }
  __syncthreads();
  if (shared.is_last == 0) return;
  if (is_others && (args.root < 0 || peer == args.root))
    StoreForPeer(args.states[peer]->stored[args.rank], number);
  __syncthreads();
  if (args.root < 0 || args.root == args.rank) AwaitRanks(args, state.stored, number);
  if (threadIdx.x != 0) return;
  state.arrived = 0;
  state.number = number;
}

// Returns the unit of 16, 4 or 1 bytes that divides all sizes and addresses.
int64_t ExchangeUnitOf(const ExchangeColumnsArgs& args) {
  uint64_t bits = reinterpret_cast<uintptr_t>(args.own) | static_cast<uint64_t>(args.own_bytes) |
                  static_cast<uint64_t>(args.begin) | static_cast<uint64_t>(args.row_bytes);
  for (int rank = 0; rank < args.num_ranks; ++rank)
    bits |= reinterpret_cast<uintptr_t>(args.all[rank]);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

template <typename Unit>
void LaunchExchangeOf(const StreamHandle& stream, const ExchangeColumnsArgs& args) {
  const int64_t most = args.rows < kMostExchangeBlocks ? args.rows : kMostExchangeBlocks;
  LaunchShape shape;
  // Without rows, flags must still be raised.
  shape.grid_x = most < 1 ? 1 : static_cast<unsigned>(most);
  shape.threads = kExchangeThreads;
  shape.shared_bytes = sizeof(ExchangeShared);
  Launch<ExchangeColumnsKernel<Unit>>(stream, "exchange_columns", shape, args);
}

}  // namespace

void LaunchExchangeColumns(const StreamHandle& stream, const ExchangeColumnsArgs& args) {
  switch (ExchangeUnitOf(args)) {
    case 16: return LaunchExchangeOf<uint4>(stream, args);
    case 4: return LaunchExchangeOf<uint32_t>(stream, args);
    default: return LaunchExchangeOf<uint8_t>(stream, args);
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
