// The matrix product of all formats: one kernel template over tiles.
//
// A block computes 64 columns of y (rows of W) for up to `kTokens` rows of x. Both are copied to
// shared memory as stored, in stages of kStageK elements of k; several stages are in flight. Codes
// are converted to BF16 only in registers. In the tensor cores' products, W is the operand of 16
// rows and x the operand of 8 columns, so that little of a tile is unused if x has few rows.
//
// Order of a sum: over the columns of a range of k, unit by unit; then over the ranges, from the
// first on. It depends only on W's shape and format. So a row's result does not depend on the tile,
// on the other rows, or on whether ranges run in separate blocks.
#pragma once

#include <math.h>

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/linear_formats.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/linear_result.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

struct LinearTileArgs {
  device::GroupedLinearArgs product;  // num_experts: 0 if not grouped
  device::LinearSplit split;
  // [ranges, m, n]: each block computes one range (grid z), and the last block of a tile to finish
  // adds them. Null: a block computes all ranges.
  float* partials;
};

// A block's stages of k, [begin, end): those of range `range`, or all.
struct BlockStages {
  int64_t range, begin, end;
};

__device__ __forceinline__ BlockStages StagesOf(const LinearTileArgs& args) {
  const int64_t range = args.partials != nullptr ? blockIdx.z : 0;
  const int64_t begin = range * args.split.stages_per_range;
  const int64_t end = args.partials != nullptr
                          ? min(begin + args.split.stages_per_range, args.split.stages)
                          : args.split.stages;
  return {range, begin, end};
}

template <Format kF, int kTokens>
struct Tile {
  using T = Traits<kF>;
  static constexpr int kRows = device::kLinearTileRows;
  static constexpr int kThreads = kTokens == 128 ? 256 : 128;
  // Number of warps along the rows of x; each has kTokenTiles * 8 rows of x and kRowTiles * 16 rows
  // of W.
  static constexpr int kTokenWarps = kTokens == 128 ? 4 : kTokens == 64 ? 2 : 1;
  static constexpr int kRowWarps = kThreads / 32 / kTokenWarps;
  static constexpr int kTokenTiles = kTokens / 8 / kTokenWarps;
  static constexpr int kRowTiles = kRows / 16 / kRowWarps;
  static constexpr int kWeightBytes = kRows * T::kStageK * T::kBits / 8;
  static constexpr int kStageBytes = kWeightBytes + kTokens * T::kStageK * T::kInputBits / 8;
  // So small that at least two blocks fit in the 228 KB of a multiprocessor.
  static constexpr int kMostBytes =
      kMostSharedBytes < 80 * 1024 && 2 * kStageBytes <= kMostSharedBytes ? kMostSharedBytes
                                                                          : 80 * 1024;
  static constexpr int kStages = kMostBytes / kStageBytes > 4 ? 4 : kMostBytes / kStageBytes;
  static constexpr unsigned kSharedBytes = kStages * kStageBytes;
  // Number of blocks per multiprocessor for which there must be enough registers; shared memory
  // would allow more.
  static constexpr bool kIsScaled = T::kHasGroups || T::kHasBlocks;
  static constexpr int kBlocks = kTokens == 128  ? 1
                                 : kTokens == 64 ? 2
                                 : kTokens == 32 ? (kIsScaled ? 3 : 4)
                                                 : (kIsScaled ? 4 : 5);
  static_assert(kStages >= 2 && kStageBytes % 128 == 0);
};

// The rows of x of a block, and the expert that multiplies them.
struct TokenRange {
  int64_t expert;
  int64_t first;
  int64_t count;  // 0: nothing to do
};

// Called by all lanes of a warp. Finds the rows of tile `tile`. For a grouped product, counts the
// tiles of the preceding experts.
template <int kTokens>
__device__ __forceinline__ TokenRange FindTokens(const device::GroupedLinearArgs& product,
                                                 int64_t tile) {
  if (product.num_experts == 0) {
    const int64_t first = tile * kTokens;
    return {0, first, min(static_cast<int64_t>(kTokens), product.linear.m - first)};
  }
  const int lane = static_cast<int>(threadIdx.x & 31u);
  int before = 0;
  for (int64_t base = 0; base < product.num_experts; base += 32) {
    const int64_t expert = base + lane;
    int begin = 0, end = 0;
    if (expert < product.num_experts) {
      begin = product.row_begin[expert];
      end = product.row_begin[expert + 1];
    }
    const int own = (end - begin + kTokens - 1) / kTokens;
    int until = own;  // inclusive prefix sum of the tiles over the lanes
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, until, distance);
      if (static_cast<unsigned>(lane) >= distance) until += other;
    }
    const int within = static_cast<int>(tile) - before - (until - own);
    const unsigned found = __ballot_sync(0xFFFFFFFFu, within >= 0 && within < own);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      const int first = __shfl_sync(0xFFFFFFFFu, begin + within * kTokens, owner);
      const int last = __shfl_sync(0xFFFFFFFFu, end, owner);
      return {base + owner, first, min(kTokens, last - first)};
    }
    before += __shfl_sync(0xFFFFFFFFu, until, 31);
  }
  return {0, 0, 0};
}

// Copies stages of a tile of rows to shared memory, with zeros beyond the matrix. Addresses are
// computed once per thread, so that a stage costs little more than the copies.
template <int kBits, int kStageK, int kTileRows, int kThreads>
class StageCopier {
 public:
  // The tile's rows begin at `rows`; the matrix has `num_rows` rows from there on.
  __device__ __forceinline__ StageCopier(const unsigned char* rows, int64_t row_bytes,
                                         int64_t num_rows, int64_t first_stage)
      : any_(rows), step_(row_bytes * kStep) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    const int64_t offset = (first_stage * kChunks + chunk) * 16;
    from_ = rows + first * row_bytes + offset;
    left_ = row_bytes - offset;
    to_ = ChunkOffset<kBits, kStageK>(first, chunk);
    num_copies_ = num_rows <= first ? 0
                                    : static_cast<int>(min(static_cast<int64_t>(kCopies),
                                                           (num_rows - first + kStep - 1) / kStep));
  }

  // Copies the next stage to `shared`.
  __device__ __forceinline__ void Copy(unsigned char* shared) {
    const unsigned char* from = from_;
    const int num_copies = left_ > 0 ? num_copies_ : 0;
    SLUICE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const bool is_valid = i < num_copies;
      AsyncCopy16(shared + to_ + i * kStep * kRowBytes, is_valid ? from : any_, is_valid);
      from += step_;
    }
    from_ += kRowBytes;
    left_ -= kRowBytes;
  }

 private:
  static constexpr int kRowBytes = kStageK * kBits / 8;  // bytes of a row per stage
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kStep = kThreads / kChunks;
  static constexpr int kCopies = kTileRows / kStep;
  // All rows of a thread have their chunk at the same place, because ChunkOffset uses only the
  // lowest bits of the row number.
  static_assert(kTileRows % kStep == 0 && kStep % 8 == 0);

  const unsigned char* any_;   // a valid address, passed for copies that read nothing
  const unsigned char* from_;  // source address in the next stage
  const int64_t step_;         // number of bytes between the rows of this thread
  int64_t left_;               // number of bytes left in a row, from from_ on
  int to_;
  int num_copies_;  // for rows within the matrix
};

// Scales of groups and blocks. Each lane loads the scales of its own rows one stage ahead. They are
// raw bits or, for NVFP4, the factors that LoadWeightUnit expects; 0 beyond the end of k.
template <Format kF, int kTokens>
struct StageScales {
  using T = Traits<kF>;
  using Shape = Tile<kF, kTokens>;

  __device__ __forceinline__ void Begin(const device::Weights& w, const void* scales,
                                        int64_t first_row) {
    units = (w.k + 31) / 32;
    group = w.group;
    row_tiles = (w.k + 63) / 64;
    is_per_unit = T::kHasGroups || w.group % T::kStageK != 0;
    const int64_t per_row = (w.k + w.group - 1) / w.group;
    SLUICE_UNROLL
    for (int r = 0; r < Shape::kRowTiles; ++r) {
      SLUICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t row = min(first_row + r * 16 + half * 8, w.n - 1);
        if constexpr (T::kHasBlocks)
          rows[r][half] = static_cast<const float*>(scales) + row / w.block_rows * per_row;
        else if constexpr (kF == Format::kNvF4)
          rows[r][half] = static_cast<const uint8_t*>(scales) + device::NvF4ScaleRow(row, per_row);
        else
          rows[r][half] = static_cast<const uint8_t*>(scales) + row * per_row;
      }
    }
  }

  __device__ __forceinline__ void Load(int64_t stage) {
    if constexpr (kF == Format::kNvF4)
      LoadTiles(stage);
    else
      LoadUnits(stage);
  }

  __device__ __forceinline__ void LoadUnits(int64_t stage) {
    SLUICE_UNROLL
    for (int unit = 0; unit < T::kUnits; ++unit) {
      const int64_t at = stage * T::kUnits + unit;
      const bool is_inside = at < units && (unit == 0 || is_per_unit);
      const int64_t index = kF == Format::kMxF4 ? at : at * 32 / group;
      SLUICE_UNROLL
      for (int r = 0; r < Shape::kRowTiles; ++r) {
        SLUICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          uint32_t bits = 0;
          if constexpr (T::kHasBlocks) {
            if (is_inside) bits = BitsOf(__ldg(static_cast<const float*>(rows[r][half]) + index));
          } else {
            if (is_inside) bits = __ldg(static_cast<const uint8_t*>(rows[r][half]) + index);
          }
          next[r][half][unit] = bits;
        }
      }
    }
  }

  // kNvF4: loads four adjacent scales at once (nvf4_scales.h), for two units.
  __device__ __forceinline__ void LoadTiles(int64_t stage) {
    SLUICE_UNROLL
    for (int i = 0; i < T::kUnits / 2; ++i) {
      const int64_t tile = stage * (T::kUnits / 2) + i;
      SLUICE_UNROLL
      for (int r = 0; r < Shape::kRowTiles; ++r) {
        SLUICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const auto* row = static_cast<const uint8_t*>(rows[r][half]);
          next[r][half][i] =
              tile < row_tiles
                  ? __ldg(reinterpret_cast<const uint32_t*>(row + tile * device::kNvF4TileBytes))
                  : 0;
        }
      }
    }
  }

  __device__ __forceinline__ void Advance(int t) {
    SLUICE_UNROLL
    for (int r = 0; r < Shape::kRowTiles; ++r) {
      SLUICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        SLUICE_UNROLL
        for (int unit = 0; unit < T::kUnits; ++unit) {
          if constexpr (kF == Format::kNvF4) {
            // Lanes with t < 2 have elements of a unit's first group, the other lanes of its second
            // group.
            uint32_t pairs[2];
            E4m3x4ToBf16(next[r][half][unit / 2], pairs[0], pairs[1]);
            const uint32_t twice = __byte_perm(pairs[unit % 2], 0, t < 2 ? 0x1010 : 0x3232);
            now[r][half][unit] = FmaBf16x2(twice, kNvF4Raise, kMinusZeros);
          } else if constexpr (kF == Format::kI4) {
            // Every unit needs its zero point, even if one scale covers the stage.
            const uint32_t own = next[r][half][unit], first = next[r][half][0];
            now[r][half][unit] = is_per_unit ? own : first;
          } else {
            now[r][half][unit] = next[r][half][unit];
          }
        }
      }
    }
  }

  const void* rows[Shape::kRowTiles][2];
  int64_t units;
  int64_t row_tiles;  // kNvF4: number of tiles of scales in a row
  int group;
  bool is_per_unit;
  uint32_t now[Shape::kRowTiles][2][T::kUnits] = {}, next[Shape::kRowTiles][2][T::kUnits] = {};
};

template <Format kF, int kTokens>
using Sums = float[Tile<kF, kTokens>::kRowTiles][Tile<kF, kTokens>::kTokenTiles][4];

// Computes to += factors * from and sets from = 0. `factors`: for the lane's two rows of each tile.
template <int kRowTiles, int kTokenTiles>
__device__ __forceinline__ void MoveSums(float (&to)[kRowTiles][kTokenTiles][4],
                                         float (&from)[kRowTiles][kTokenTiles][4],
                                         const float (&factors)[kRowTiles][2]) {
  SLUICE_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    SLUICE_UNROLL
    for (int j = 0; j < kTokenTiles; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        to[r][j][i] = fmaf(factors[r][i / 2], from[r][j][i], to[r][j][i]);
        from[r][j][i] = 0;
      }
    }
  }
}

// Adds the products of one unit to `sums`, multiplying E4M3 codes directly.
template <Format kF, int kTokens>
__device__ __forceinline__ void MultiplyCodes(const unsigned char* weights,
                                              const unsigned char* inputs, int unit, int row,
                                              int token, int t, Sums<kF, kTokens>& sums) {
  using Shape = Tile<kF, kTokens>;
  constexpr int kStageK = Traits<kF>::kStageK;
  uint2 a[Shape::kRowTiles][2];
  SLUICE_UNROLL
  for (int r = 0; r < Shape::kRowTiles; ++r) {
    SLUICE_UNROLL
    for (int half = 0; half < 2; ++half)
      a[r][half] = LoadByteUnit<kStageK>(weights, row + r * 16 + half * 8, unit, t);
  }
  SLUICE_UNROLL
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    const uint2 b = LoadByteUnit<kStageK>(inputs, token + j * 8, unit, t);
    SLUICE_UNROLL
    for (int r = 0; r < Shape::kRowTiles; ++r)
      PairMmaE4m3(sums[r][j], {a[r][0].x, a[r][1].x, a[r][0].y, a[r][1].y}, {b.x, b.y});
  }
}

// Adds the products of one unit to `sums`, in BF16.
template <Format kF, int kTokens>
__device__ __forceinline__ void MultiplyExpanded(const unsigned char* weights,
                                                 const unsigned char* inputs, int unit, int row,
                                                 int token, int t,
                                                 const StageScales<kF, kTokens>& scales,
                                                 Sums<kF, kTokens>& sums) {
  using Shape = Tile<kF, kTokens>;
  constexpr int kStageK = Traits<kF>::kStageK;
  uint32_t a[Shape::kRowTiles][2][4];
  SLUICE_UNROLL
  for (int r = 0; r < Shape::kRowTiles; ++r) {
    SLUICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      LoadWeightUnit<kF>(weights, row + r * 16 + half * 8, unit, t, scales.now[r][half][unit],
                         a[r][half]);
    }
  }
  SLUICE_UNROLL
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    uint32_t b[4];
    if constexpr (Traits<kF>::kInputBits == 16) {
      LoadBf16Unit<kStageK>(inputs, token + j * 8, unit, t, b);
    } else {
      const uint2 codes = LoadByteUnit<kStageK>(inputs, token + j * 8, unit, t);
      E4m3x4ToBf16(codes.x, b[0], b[1]);
      E4m3x4ToBf16(codes.y, b[2], b[3]);
    }
    SLUICE_UNROLL
    for (int step = 0; step < 4; step += 2) {
      SLUICE_UNROLL
      for (int r = 0; r < Shape::kRowTiles; ++r) {
        PairMmaBf16(sums[r][j],
                    {a[r][0][step], a[r][1][step], a[r][0][step + 1], a[r][1][step + 1]},
                    {b[step], b[step + 1]});
      }
    }
  }
}

// Number of blocks of each tile that have written their part; 0 before and after a launch.
__device__ __forceinline__ unsigned* FinishedRanges(const device::LinearArgs& args) {
  SLUICE_KEPT unsigned finished[device::kMostSplitTiles];
  return args.counters != nullptr ? args.counters : finished;
}

// All threads of a block call this function after the block has written its partial sums. Returns
// true in the last block of a tile to finish. That block may read all partial sums with __ldcg,
// which bypasses the L1 cache.
__device__ __forceinline__ bool IsLastOfTile(const device::LinearArgs& args) {
  auto* is_last = reinterpret_cast<int*>(SharedMemory());
  __threadfence();
  __syncthreads();  // now all parts of this block are visible, and no thread reads the stages
  if (threadIdx.x == 0) {
    unsigned& finished = FinishedRanges(args)[blockIdx.y * gridDim.x + blockIdx.x];
    *is_last = atomicAdd(&finished, 1u) == gridDim.z - 1;
    if (*is_last) atomicExch(&finished, 0u);  // atomic: ordered after the others
  }
  __syncthreads();
  __threadfence();
  return *is_last != 0;
}

// Adds up the partial sums of a tile's ranges in ascending order: kThreads threads of a block, for
// kRows rows of W.
template <int kThreads, int kRows = device::kLinearTileRows>
__device__ __forceinline__ void CombineRanges(const LinearTileArgs& args, const TokenRange& tokens,
                                              int64_t first_n, const ResultScales& result) {
  constexpr int kAtOnce = 4;  // number of sums per thread whose parts are read together
  static_assert(kThreads % kRows == 0);
  const device::LinearArgs& linear = args.product.linear;
  const int64_t n = first_n + threadIdx.x % kRows;
  if (n >= linear.w.n) return;
  const int ranges = static_cast<int>(args.split.ranges);
  for (int first = static_cast<int>(threadIdx.x) / kRows; first < tokens.count;
       first += kAtOnce * (kThreads / kRows)) {
    float totals[kAtOnce] = {};
    for (int range = 0; range < ranges; ++range) {
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int in_tile = first + i * (kThreads / kRows);
        if (in_tile >= tokens.count) continue;
        totals[i] +=
            __ldcg(args.partials + (range * linear.m + tokens.first + in_tile) * linear.w.n + n);
      }
    }
    SLUICE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int in_tile = first + i * (kThreads / kRows);
      if (in_tile < tokens.count) result.Write(linear, tokens.first + in_tile, n, totals[i]);
    }
  }
}

// The work of a block. kMultipliesE4m3: whether E4M3 inputs and weights are multiplied as E4M3;
// otherwise both are converted to BF16.
template <Format kF, int kTokens, bool kMultipliesE4m3>
__device__ __forceinline__ void RunTile(const LinearTileArgs& args) {
  using T = Traits<kF>;
  using Shape = Tile<kF, kTokens>;
  const device::LinearArgs& linear = args.product.linear;
  const device::Weights& w = linear.w;
  LetLaterKernelsBegin();
  // The rows of each expert are results of earlier kernels.
  if (args.product.num_experts > 0) AwaitEarlierKernels();
  const TokenRange tokens = FindTokens<kTokens>(args.product, blockIdx.x);
  if (tokens.count <= 0) return;

  const int64_t first_n = static_cast<int64_t>(blockIdx.y) * Shape::kRows;
  const int64_t weight_bytes = w.k * T::kBits / 8, input_bytes = w.k * T::kInputBits / 8;
  const auto* weight_rows = static_cast<const unsigned char*>(w.codes) +
                            tokens.expert * args.product.codes_stride + first_n * weight_bytes;
  const auto* input_rows = static_cast<const unsigned char*>(linear.x) + tokens.first * input_bytes;

  const auto [range, begin, end] = StagesOf(args);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  const int row = warp / Shape::kTokenWarps * Shape::kRowTiles * 16 + g;  // row of W within the
                                                                          // tile
  const int token = warp % Shape::kTokenWarps * Shape::kTokenTiles * 8;   // row of x within the
                                                                          // tile

  // Sums over the current unit of scaling (part, which is multiplied by its block's scale), over
  // the range (sums), and over all ranges (total).
  Sums<kF, kTokens> total = {}, sums = {}, part = {};
  float ones[Shape::kRowTiles][2];
  SLUICE_UNROLL
  for (int r = 0; r < Shape::kRowTiles; ++r) ones[r][0] = ones[r][1] = 1;

  StageScales<kF, kTokens> scales;
  if constexpr (T::kHasGroups || T::kHasBlocks) {
    scales.Begin(w,
                 static_cast<const unsigned char*>(w.group_scales) +
                     tokens.expert * args.product.group_scales_stride,
                 first_n + row);
    scales.Load(begin);
  }

  unsigned char* shared = SharedMemory();
  StageCopier<T::kBits, T::kStageK, Shape::kRows, Shape::kThreads> weight_copier(
      weight_rows, weight_bytes, w.n - first_n, begin);
  StageCopier<T::kInputBits, T::kStageK, kTokens, Shape::kThreads> input_copier(
      input_rows, input_bytes, tokens.count, begin);
  const auto copy_next = [&](int slot) {
    unsigned char* to = shared + slot * Shape::kStageBytes;
    weight_copier.Copy(to);
    input_copier.Copy(to + Shape::kWeightBytes);
  };
  // No kernel writes weights, so the first weights are copied before the wait.
  SLUICE_UNROLL
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    if (begin + i < end) weight_copier.Copy(shared + i * Shape::kStageBytes);
  }
  AwaitEarlierKernels();
  SLUICE_UNROLL
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    if (begin + i < end) input_copier.Copy(shared + i * Shape::kStageBytes + Shape::kWeightBytes);
    AsyncCommit();
  }

  int slot = 0;
  int64_t left_in_range = args.split.stages_per_range;
  for (int64_t stage = begin; stage < end; ++stage) {
    AsyncWait<Shape::kStages - 2>();
    __syncthreads();
    // Now no warp uses the slot of the previous stage.
    if (stage + Shape::kStages - 1 < end) copy_next(slot == 0 ? Shape::kStages - 1 : slot - 1);
    AsyncCommit();
    if constexpr (T::kHasGroups || T::kHasBlocks) {
      scales.Advance(t);
      if (stage + 1 < end) scales.Load(stage + 1);
    }

    const unsigned char* weights = shared + slot * Shape::kStageBytes;
    const unsigned char* inputs = weights + Shape::kWeightBytes;
    SLUICE_UNROLL
    for (int unit = 0; unit < T::kUnits; ++unit) {
      if constexpr (kF == Format::kF8Inputs && kMultipliesE4m3)
        MultiplyCodes<kF, kTokens>(weights, inputs, unit, row, token + g, t, part);
      else
        MultiplyExpanded<kF, kTokens>(weights, inputs, unit, row, token + g, t, scales,
                                      T::kHasPartSums ? part : sums);
      if constexpr (T::kHasBlocks) {
        if (scales.is_per_unit || unit == T::kUnits - 1) {
          float factors[Shape::kRowTiles][2];
          SLUICE_UNROLL
          for (int r = 0; r < Shape::kRowTiles; ++r) {
            SLUICE_UNROLL
            for (int half = 0; half < 2; ++half) {
              const uint32_t first = scales.now[r][half][0], own = scales.now[r][half][unit];
              const uint32_t bits = scales.is_per_unit ? own : first;
              factors[r][half] =
                  FloatFromBits(kF == Format::kI4 ? bits & ~device::kInt4ZeroMask : bits);
            }
          }
          MoveSums(sums, part, factors);
        }
      }
    }
    if constexpr (kF == Format::kF8Inputs) MoveSums(sums, part, ones);
    if (--left_in_range == 0 || stage + 1 == end) {
      MoveSums(total, sums, ones);
      left_in_range = args.split.stages_per_range;
    }
    slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
  }
  AsyncWait<0>();

  ResultScales result;
  result.Begin(linear, kF == Format::kNvF4 ? kNvF4Factor : 1.0f,
               tokens.expert * args.product.row_scales_stride);
  SLUICE_UNROLL
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t in_tile = token + j * 8 + 2 * t + i % 2;
      if (in_tile >= tokens.count) continue;
      const int64_t m = tokens.first + in_tile;
      SLUICE_UNROLL
      for (int r = 0; r < Shape::kRowTiles; ++r) {
        const int64_t n = first_n + row + r * 16 + i / 2 * 8;
        if (n >= w.n) continue;
        if (args.partials != nullptr)
          args.partials[(range * linear.m + m) * w.n + n] = total[r][j][i];
        else
          result.Write(linear, m, n, total[r][j][i]);
      }
    }
  }
  if (args.partials != nullptr && IsLastOfTile(linear))
    CombineRanges<Shape::kThreads>(args, tokens, first_n, result);
}

template <Format kF, int kTokens, bool kMultipliesE4m3>
__global__ void __launch_bounds__(Tile<kF, kTokens>::kThreads, Tile<kF, kTokens>::kBlocks)
    LinearTileKernel(LinearTileArgs args) {
  // If the tensor cores lack E4M3, device code uses BF16, even if the host requested E4M3.
  if constexpr (kF == Format::kF8Inputs && kMultipliesE4m3) {
    if (HasE4m3Mma())
      RunTile<kF, kTokens, true>(args);
    else
      RunTile<kF, kTokens, false>(args);
  } else {
    RunTile<kF, kTokens, false>(args);
  }
}

template <Format kF, int kTokens, bool kMultipliesE4m3 = true>
void LaunchTile(const StreamHandle& stream, const LinearTileArgs& args) {
  using Shape = Tile<kF, kTokens>;
  const device::LinearArgs& linear = args.product.linear;
  const int64_t tiles = device::LinearTokenTiles(linear.m, args.product.num_experts, kTokens);
  const int64_t ranges = args.partials != nullptr ? args.split.ranges : 1;
  Launch<LinearTileKernel<kF, kTokens, kMultipliesE4m3>>(
      stream, "linear",
      {.grid_x = static_cast<unsigned>(tiles),
       .grid_y = static_cast<unsigned>(device::LinearRowTiles(linear.w.n)),
       .threads = static_cast<unsigned>(Shape::kThreads),
       .grid_z = static_cast<unsigned>(ranges),
       .shared_bytes = Shape::kSharedBytes,
       .overlaps = true},
      args);
}

// `tokens`: rows of x per block, 16, 32, 64 or 128.
template <Format kF>
void LaunchTiles(const StreamHandle& stream, int tokens, const LinearTileArgs& args) {
  static_assert(Traits<kF>::kStageK == device::LinearStageK(Traits<kF>::kCodes));
  switch (tokens) {
    case 16: return LaunchTile<kF, 16>(stream, args);
    case 32: return LaunchTile<kF, 32>(stream, args);
    case 64: return LaunchTile<kF, 64>(stream, args);
    default:
      // Tiles of half the size, which give bit-identical results.
      if constexpr (Tile<kF, 128>::kSharedBytes > kMostSharedBytes)
        return LaunchTile<kF, 64>(stream, args);
      else
        return LaunchTile<kF, 128>(stream, args);
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
