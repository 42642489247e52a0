// Products of E4M3 weights with row scales and E4M3 inputs, for compute capability 9.0 alone:
// tensor maps feed the products of warpgroups.
//
// A block computes 128 columns of y (rows of W) for up to `kTokens` rows of x, at most 64. One
// thread copies tiles of both to a ring of stages, 128 columns of k at a time; two warpgroups
// multiply, each 64 rows of W by all rows of x, so W is the 64-row operand and few rows of x leave
// little of a product unused. Two mbarriers for each stage say that it is full or empty.
//
// Order of a sum: as in linear_tile.h, over 128 columns in the tensor cores, whose sums keep about
// 14 bits; then in F32 over the stages of a range of k, then over the ranges. It depends only on
// W's shape, so a row's result does not depend on the tile or on the other rows, but it is not
// bit-identical to that of linear_tile.h on a GPU.
#include "kernels/cuda/linear_groups.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace linear {

#if !defined(__HIP__) && !defined(SLUICE_EMULATED_HIP)

struct GroupTileArgs {
  device::TensorMap w, x;  // tiles of 128 columns: of 128 rows of W, of kTokens rows of x
  LinearTileArgs tile;
};

template <int kTokens>
struct GroupTile {
  static constexpr int kGroups = 2;
  static constexpr int kRows = 64 * kGroups;        // of W
  static constexpr int kProducers = kGroups * 128;  // the first thread of the warp that copies
  static constexpr int kThreads = kProducers + 32;
  static constexpr int kColumns = 128;  // of k, a stage
  static constexpr int kWeightBytes = kRows * kColumns;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kColumns;
  static constexpr int kAlignment = 1024;  // of a tile, for its swizzle
  static constexpr int kMostBytes = 96 * 1024;
  static constexpr int kStages = kMostBytes / kStageBytes > 5 ? 5 : kMostBytes / kStageBytes;
  // The mbarriers lie behind the stages: those of full stages, then those of empty ones.
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr unsigned kSharedBytes = kAlignment + kRingBytes + 2 * kStages * 8;
  static_assert(kStages >= 2 && kStageBytes % kAlignment == 0 && kSharedBytes <= 99 * 1024);
};

// Places in shared memory.
template <int kTokens>
struct Ring {
  using Shape = GroupTile<kTokens>;
  uint32_t begin;
  __device__ __forceinline__ uint32_t Weights(int slot) const {
    return begin + static_cast<uint32_t>(slot * Shape::kStageBytes);
  }
  __device__ __forceinline__ uint32_t Inputs(int slot) const {
    return Weights(slot) + Shape::kWeightBytes;
  }
  __device__ __forceinline__ uint32_t Full(int slot) const {
    return begin + static_cast<uint32_t>(Shape::kRingBytes + slot * 8);
  }
  __device__ __forceinline__ uint32_t Empty(int slot) const {
    return Full(slot) + Shape::kStages * 8;
  }
};

// A slot of the ring, and the parity of the phase in which it is filled.
template <int kStages>
struct Turn {
  int slot = 0, parity = 0;
  __device__ __forceinline__ void Next() {
    if (++slot < kStages) return;
    slot = 0;
    parity ^= 1;
  }
};

// One thread. Copies stages [begin, end) to the ring.
template <int kTokens>
__device__ __forceinline__ void CopyStages(const GroupTileArgs& args, const Ring<kTokens>& ring,
                                           int first_row, int first_token, int begin, int end) {
  using Shape = GroupTile<kTokens>;
  const int ahead = min(Shape::kStages, end - begin);
  // No kernel writes weights, so the first of them are copied before the wait.
  for (int i = 0; i < ahead; ++i) {
    ArriveForBytes(ring.Full(i), Shape::kStageBytes);
    CopyTile(ring.Weights(i), &args.w, (begin + i) * Shape::kColumns, first_row, ring.Full(i));
  }
  AwaitEarlierKernels();
  for (int i = 0; i < ahead; ++i)
    CopyTile(ring.Inputs(i), &args.x, (begin + i) * Shape::kColumns, first_token, ring.Full(i));
  Turn<Shape::kStages> turn;
  for (int stage = begin + Shape::kStages; stage < end; ++stage) {
    AwaitPhase(ring.Empty(turn.slot), turn.parity);
    const uint32_t full = ring.Full(turn.slot);
    ArriveForBytes(full, Shape::kStageBytes);
    CopyTile(ring.Weights(turn.slot), &args.w, stage * Shape::kColumns, first_row, full);
    CopyTile(ring.Inputs(turn.slot), &args.x, stage * Shape::kColumns, first_token, full);
    turn.Next();
  }
}

// Warpgroup. Multiplies stages [begin, end). `total`: the sum over the ranges of a range's sum.
// kManyRanges: whether the stages may be of several ranges, which takes more registers.
template <int kTokens, bool kManyRanges>
__device__ __forceinline__ void MultiplyStages(const GroupTileArgs& args, const Ring<kTokens>& ring,
                                               int group, int begin, int end,
                                               float (&total)[kTokens / 2]) {
  using Shape = GroupTile<kTokens>;
  float part[kTokens / 2] = {}, sums[kTokens / 2] = {};
  SLUICE_UNROLL
  for (int i = 0; i < kTokens / 2; ++i) total[i] = 0;
  const auto per_range = static_cast<int>(args.tile.split.stages_per_range);
  int left_in_range = per_range;
  Turn<Shape::kStages> turn;
  for (int stage = begin; stage < end; ++stage) {
    AwaitPhase(ring.Full(turn.slot), turn.parity);
    const uint64_t weights =
        DescribeRows(ring.Weights(turn.slot) + static_cast<uint32_t>(group * 64 * Shape::kColumns));
    const uint64_t inputs = DescribeRows(ring.Inputs(turn.slot));
    PinRegisters(part);
    FenceProducts();
    SLUICE_UNROLL
    for (int step = 0; step < Shape::kColumns / 32; ++step) {
      const uint64_t columns = static_cast<uint64_t>(step) * kNextColumns;
      MultiplyGroup<kTokens>(part, weights + columns, inputs + columns, step != 0);
    }
    CommitProducts();
    AwaitProducts<0>();
    PinRegisters(part);
    if (threadIdx.x % 32 == 0) Arrive(ring.Empty(turn.slot));
    SLUICE_UNROLL
    for (int i = 0; i < kTokens / 2; ++i) (kManyRanges ? sums : total)[i] += part[i];
    if (kManyRanges && (--left_in_range == 0 || stage + 1 == end)) {
      SLUICE_UNROLL
      for (int i = 0; i < kTokens / 2; ++i) {
        total[i] += sums[i];
        sums[i] = 0;
      }
      left_in_range = per_range;
    }
    turn.Next();
  }
}

template <int kTokens, bool kManyRanges>
__global__ void __launch_bounds__(GroupTile<kTokens>::kThreads, kManyRanges ? 1 : 2)
    LinearGroupsKernel(const __grid_constant__ GroupTileArgs args) {
  // Compiled for 9.0a if 9.0 is one of the program's architectures; otherwise never launched.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Shape = GroupTile<kTokens>;
  const device::LinearArgs& linear = args.tile.product.linear;
  LetLaterKernelsBegin();
  const Ring<kTokens> ring{(SharedAddress(SharedMemory()) + Shape::kAlignment - 1) &
                           ~static_cast<uint32_t>(Shape::kAlignment - 1)};
  const int64_t first_token = static_cast<int64_t>(blockIdx.x) * kTokens;
  const int64_t first_n = static_cast<int64_t>(blockIdx.y) * Shape::kRows;
  const bool is_split = args.tile.partials != nullptr;
  const auto [range, begin, end] = StagesOf(args.tile);

  if (threadIdx.x == Shape::kProducers) {
    for (int slot = 0; slot < Shape::kStages; ++slot) {
      InitMbarrier(ring.Full(slot), 1);
      InitMbarrier(ring.Empty(slot), Shape::kGroups * 4);  // an arrival of each warp
    }
    FenceMbarriers();
  }
  __syncthreads();
  ResultScales result;
  if (threadIdx.x >= Shape::kProducers) {
    if (threadIdx.x == Shape::kProducers)
      CopyStages(args, ring, static_cast<int>(first_n), static_cast<int>(first_token),
                 static_cast<int>(begin), static_cast<int>(end));
    else
      AwaitEarlierKernels();
    __syncwarp();
    result.Begin(linear, 1.0f, 0);
  } else {
    AwaitEarlierKernels();
    float total[kTokens / 2];
    const int group = static_cast<int>(threadIdx.x) / 128;
    MultiplyStages<kTokens, kManyRanges>(args, ring, group, static_cast<int>(begin),
                                         static_cast<int>(end), total);
    result.Begin(linear, 1.0f, 0);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    SLUICE_UNROLL
    for (int i = 0; i < kTokens / 2; ++i) {
      const int64_t m = first_token + i / 4 * 8 + 2 * t + i % 2;
      const int64_t n = first_n + warp * 16 + g + i / 2 % 2 * 8;
      if (m >= linear.m || n >= linear.w.n) continue;
      if (is_split)
        args.tile.partials[(range * linear.m + m) * linear.w.n + n] = total[i];
      else
        result.Write(linear, m, n, total[i]);
    }
  }
  if (is_split && IsLastOfTile(linear)) {
    const TokenRange tokens{0, first_token, min(int64_t{kTokens}, linear.m - first_token)};
    if (threadIdx.x < Shape::kProducers)
      CombineRanges<Shape::kProducers, Shape::kRows>(args.tile, tokens, first_n, result);
  }
#endif
}

// Describes `rows` rows of k codes to copies of tiles of `box_rows` rows.
int DescribeCodes(device::TensorMap& map, const void* codes, int64_t rows, int64_t k,
                  int box_rows) {
  const uint64_t sizes[] = {static_cast<uint64_t>(k), static_cast<uint64_t>(rows)};
  const uint64_t strides[] = {static_cast<uint64_t>(k)};
  const uint32_t box[] = {128, static_cast<uint32_t>(box_rows)};
  return EncodeCodes(map, codes, sizes, strides, box);
}

template <int kTokens, bool kManyRanges>
void LaunchGroups(const StreamHandle& stream, const LinearTileArgs& tile) {
  using Shape = GroupTile<kTokens>;
  const char* const name = "linear_groups";
  const device::LinearArgs& linear = tile.product.linear;
  static thread_local GroupTileArgs args;  // the driver requires its alignment
  args.tile = tile;
  int code = DescribeCodes(args.w, linear.w.codes, linear.w.n, linear.w.k, Shape::kRows);
  if (code == 0) code = DescribeCodes(args.x, linear.x, linear.m, linear.w.k, kTokens);
  if (code != 0) return stream.failure->Record(name, code);
  Launch<LinearGroupsKernel<kTokens, kManyRanges>>(
      stream, name,
      {.grid_x = static_cast<unsigned>((linear.m + kTokens - 1) / kTokens),
       .grid_y = static_cast<unsigned>((linear.w.n + Shape::kRows - 1) / Shape::kRows),
       .threads = static_cast<unsigned>(Shape::kThreads),
       .grid_z = static_cast<unsigned>(tile.partials != nullptr ? tile.split.ranges : 1),
       .shared_bytes = Shape::kSharedBytes,
       .overlaps = true},
      args);
}

#endif

}  // namespace linear

void LaunchLinearGroups(const StreamHandle& stream, const device::LinearArgs& args) {
#if !defined(__HIP__) && !defined(SLUICE_EMULATED_HIP)
  if (args.m == 0) return;
  linear::LinearTileArgs tile{{args, 0, 0, 0, 0, nullptr}, device::LinearSplitOf(args.w), nullptr};
  // With more rows of x, several blocks read the same rows of W, from the cache.
  constexpr int kMostTokens = 64;
  const int tokens = min(device::LinearTileTokens(args.m), kMostTokens);
  const int64_t tiles =
      device::LinearTokenTiles(args.m, 0, tokens) * device::LinearRowTiles(args.w.n);
  if (tile.split.ranges > 1 && args.m <= device::kMaxParallelSplitRows &&
      tiles <= device::kMostSplitTiles)
    tile.partials = static_cast<float*>(args.scratch);
  if (tile.split.ranges > 1 && tile.partials == nullptr)
    return linear::LaunchGroups<64, true>(stream, tile);
  switch (tokens) {
    case 16: return linear::LaunchGroups<16, false>(stream, tile);
    case 32: return linear::LaunchGroups<32, false>(stream, tile);
    default: return linear::LaunchGroups<64, false>(stream, tile);
  }
#else
  constexpr int kNotSupported = 801;
  static_cast<void>(args);
  stream.failure->Record("linear_groups", kNotSupported);
#endif
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
