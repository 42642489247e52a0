// Paged attention: tiles of query rows against the positions of their sequences, with a running
// softmax.
//
// A block of four warps takes one item and one head tile (attention_tiles.h). In a wide tile every
// warp has 16 rows of its own; in a narrow one the warps share 16 rows: each takes a quarter of the
// positions of the scores, then a quarter of the columns of the sums. Either way a row's numbers
// come from the same operations in the same order: positions in tiles at fixed multiples, whose
// weights are rounded to BF16, and ranges of kAttentionSplit positions folded one after the other,
// here or by the merging kernel.
#include <math.h>

#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::AttentionArgs;
using device::AttentionItem;
using device::AttentionMerge;
using device::AttentionSliceInfo;
using device::kAttentionSplit;
using device::kNarrowTileRows;
using device::kPartialExtraNumbers;
using device::kWideTileRows;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr float kLog2E = 1.44269504088896f;
constexpr float kNothing = -INFINITY;  // the largest score of no position

struct AttentionLaunch {
  AttentionArgs attention;
  int first_item;
  device::HeadTiles head_tiles;
  float score_scale;  // from q . codes to exponents of 2
  int num_stages;     // tiles of keys and values in shared memory, 1 or 2
};

// Of a block, in shared memory; see `fold` below.
__host__ __device__ constexpr int FoldedNumbers(int own_steps) {
  return (own_steps * 8 + 4) * kThreads;
}

// By what two sums, taken relative to their largest scores, are to be multiplied before they are
// added.
__device__ __forceinline__ void Fold(float& largest, float other_largest, float& factor,
                                     float& other_factor) {
  const float next = fmaxf(largest, other_largest);
  const float reference = next == kNothing ? 0.0f : next;
  factor = exp2f(largest - reference);
  other_factor = exp2f(other_largest - reference);
  largest = next;
}
// Spelt out, so that every compiler rounds alike wherever this stands.
__device__ __forceinline__ float FoldSum(float sum, float factor, float other, float other_factor) {
  return fmaf(sum, factor, other * other_factor);
}
// Adding +0 makes a -0 of vanished numbers +0.
__device__ __forceinline__ float Finish(float sum, float factor) {
  return fmaf(sum, factor, 0.0f);
}

template <bool kIsE4m3, int kDim, int kRows>
__global__ void __launch_bounds__(kThreads, kRows == kWideTileRows ? 1
                                            : kIsE4m3              ? 4
                                                      : 3) AttentionKernel(AttentionLaunch launch) {
  using Tile = KvTile<kIsE4m3, kDim>;
  constexpr bool kIsWide = kRows == kWideTileRows;
  constexpr int kPositions = Tile::kPositions;
  constexpr int kOwnGroups = kPositions / 8 / (kIsWide ? 1 : kWarps);  // of eight positions
  constexpr int kOwnSteps = kIsWide ? Tile::kMaxSteps : (Tile::kMaxSteps + kWarps - 1) / kWarps;
  constexpr int kLoads = Tile::kStepsOfLoad;

  const AttentionArgs& args = launch.attention;
  const AttentionItem item = args.items[launch.first_item + static_cast<int>(blockIdx.x)];
  if (item.slice < 0) return;  // a place that this step does not use
  const AttentionSliceInfo slice = args.slices[item.slice];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const Tile tile{args.cache.head_dim};
  const int group = args.num_heads / args.cache.num_kv_heads;
  const int kv_head = static_cast<int>(blockIdx.y) / launch.head_tiles.per_group;
  const int first_head =
      static_cast<int>(blockIdx.y) % launch.head_tiles.per_group * launch.head_tiles.heads;
  const int num_heads = min(launch.head_tiles.heads, group - first_head);

  unsigned char* const stages = SharedMemory();
  auto* const folded =
      reinterpret_cast<float*>(stages + launch.num_stages * 2 * tile.bytes()) + thread;
  const int num_own_steps = kIsWide ? tile.steps() : (tile.steps() + kWarps - 1) / kWarps;
  // Of narrow tiles alone: weights [16, kPositions + 8], and each warp's largest scores of 16 rows.
  auto* const weights = reinterpret_cast<uint16_t*>(folded - thread + FoldedNumbers(num_own_steps));
  auto* const warps_largest = reinterpret_cast<float*>(weights + 16 * (kPositions + 8));

  // This lane's rows g and g + 8 of its warp's 16.
  int token[2], head[2], first_seen[2], last_seen[2];
  const uint16_t* query[2];
  SLUICE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row = (kIsWide ? warp : static_cast<int>(blockIdx.z)) * 16 + g + 8 * r;
    token[r] = row / launch.head_tiles.heads;
    head[r] = kv_head * group + first_head + row % launch.head_tiles.heads;
    if (token[r] < item.num_tokens && row % launch.head_tiles.heads < num_heads) {
      const int in_slice = item.first_token + token[r];
      const int position = slice.context + in_slice;
      const int in_chunk = args.chunk > 0 ? position / args.chunk * args.chunk : 0;
      const int in_window =
          args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
      first_seen[r] = max(in_chunk, in_window);
      last_seen[r] = position;
      query[r] =
          args.q + (static_cast<int64_t>(slice.first_row + in_slice) * args.num_heads + head[r]) *
                       tile.head_dim();
    } else {
      first_seen[r] = 0x7FFFFFFF;
      last_seen[r] = -1;
      query[r] = nullptr;
    }
  }
  uint32_t kept_query[kDim > 0 ? Tile::kMaxSteps / kLoads : 1][kLoads][4];
  if constexpr (kDim > 0) {
    SLUICE_UNROLL
    for (int step = 0; step < Tile::kMaxSteps; ++step)
      tile.LoadQuery(kept_query[step / kLoads][step % kLoads], query, step);
  }

  const auto copy_tile = [&](int index) {
    constexpr int kOwnRows = kPositions / kWarps;
    const int position = index * kPositions + warp * kOwnRows + lane;
    int64_t offset = -1;
    if (lane < kOwnRows && position >= item.begin && position < item.end) {
      const int block_size = args.cache.block_size;
      const int64_t block = args.tables[slice.table + position / block_size];
      offset = ((block * args.cache.num_kv_heads + kv_head) * block_size + position % block_size) *
               tile.head_dim() * Tile::kNumberBytes;
    }
    unsigned char* keys = stages + index % launch.num_stages * 2 * tile.bytes();
    tile.template Copy<kOwnRows>(
        keys, keys + tile.bytes(), static_cast<const unsigned char*>(args.cache.k),
        static_cast<const unsigned char*>(args.cache.v), warp * kOwnRows, offset);
    AsyncCommit();
  };

  // Of the range under way: relative to the largest score, in units of score_scale. Every column
  // of weight_sums holds the same sum.
  float largest[2] = {kNothing, kNothing};
  float weight_sums[4] = {0, 0, 0, 0};
  float sums[kOwnSteps][2][4];
  const auto clear_sums = [&] {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) largest[r] = kNothing;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) weight_sums[i] = 0;
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) sums[j][i / 4][i % 4] = 0;
    }
  };
  // Puts a range's results to those of the ranges before it, which lie in shared memory: each
  // thread's sums, then its rows' largest scores and sums of weights.
  const auto fold = [&](bool is_first) {
    float* const folded_rows = folded + num_own_steps * 8 * kThreads;
    float factor[2] = {0, 0}, new_factor[2] = {1, 1};
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (!is_first) {
        float folded_largest = folded_rows[r * kThreads];
        Fold(folded_largest, largest[r], factor[r], new_factor[r]);
        largest[r] = folded_largest;
        weight_sums[2 * r] =
            FoldSum(folded_rows[(2 + r) * kThreads], factor[r], weight_sums[2 * r], new_factor[r]);
      }
      folded_rows[r * kThreads] = largest[r];
      folded_rows[(2 + r) * kThreads] = weight_sums[2 * r];
    }
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      if (j >= num_own_steps) break;
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) {
        float& sum = sums[j][i / 4][i % 4];
        float& before = folded[(j * 8 + i) * kThreads];
        const int r = i % 4 / 2;
        if (!is_first) sum = FoldSum(before, factor[r], sum, new_factor[r]);
        before = sum;
      }
    }
  };

  clear_sums();
  const int first_tile = item.begin / kPositions;
  const int end_tile = (item.end + kPositions - 1) / kPositions;
  copy_tile(first_tile);
  for (int index = first_tile; index < end_tile; ++index) {
    AsyncWait<0>();
    __syncthreads();  // this tile is there, and nobody reads the one before
    if (launch.num_stages == 2 && index + 1 < end_tile) copy_tile(index + 1);
    unsigned char* const keys = stages + index % launch.num_stages * 2 * tile.bytes();
    unsigned char* const values = keys + tile.bytes();
    const int first_group = kIsWide ? 0 : warp * kOwnGroups;

    // Scores.
    float scores[kOwnGroups][4];
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
    const auto add_scores = [&](const uint32_t(&q)[kLoads][4], int step) {
      SLUICE_UNROLL
      for (int n = 0; n < kOwnGroups; ++n) {
        uint32_t b[kLoads][2];
        tile.LoadKeys(b, keys, (first_group + n) * 8, step);
        SLUICE_UNROLL
        for (int i = 0; i < kLoads; ++i) {
          if (step + i < tile.steps()) MmaBf16(scores[n], q[i], b[i]);
        }
      }
    };
    if constexpr (kDim > 0) {
      SLUICE_UNROLL
      for (int i = 0; i < Tile::kMaxSteps / kLoads; ++i) add_scores(kept_query[i], i * kLoads);
    } else {
      for (int step = 0; step < tile.steps(); step += kLoads) {
        uint32_t q[kLoads][4];
        SLUICE_UNROLL
        for (int i = 0; i < kLoads; ++i) tile.LoadQuery(q[i], query, step + i);
        add_scores(q, step);
      }
    }

    // What a row does not see counts nothing.
    float tile_largest[2] = {kNothing, kNothing};
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int position = index * kPositions + (first_group + n) * 8 + 2 * t + i % 2;
        if (position < first_seen[i / 2] || position > last_seen[i / 2]) scores[n][i] = kNothing;
        tile_largest[i / 2] = fmaxf(tile_largest[i / 2], scores[n][i]);
      }
    }
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      for (int mask = 1; mask <= 2; mask *= 2)
        tile_largest[r] =
            fmaxf(tile_largest[r], __shfl_xor_sync(0xFFFFFFFFu, tile_largest[r], mask));
    }
    if constexpr (!kIsWide) {
      if (t == 0) {
        warps_largest[warp * 16 + g] = tile_largest[0];
        warps_largest[warp * 16 + g + 8] = tile_largest[1];
      }
      __syncthreads();
      SLUICE_UNROLL
      for (int other = 0; other < kWarps; ++other) {
        tile_largest[0] = fmaxf(tile_largest[0], warps_largest[other * 16 + g]);
        tile_largest[1] = fmaxf(tile_largest[1], warps_largest[other * 16 + g + 8]);
      }
    }

    // Weights, relative to the largest score so far.
    float factor[2], reference[2];
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float next = fmaxf(largest[r], tile_largest[r] * launch.score_scale);
      reference[r] = next == kNothing ? 0.0f : next;
      factor[r] = exp2f(largest[r] - reference[r]);
      largest[r] = next;
    }
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) weight_sums[i] *= factor[i / 2];
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) sums[j][i / 4][i % 4] *= factor[i % 4 / 2];
    }
    uint32_t packed[kOwnGroups][2];
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int r = 0; r < 2; ++r) {
        packed[n][r] =
            PackBf16(exp2f(fmaf(scores[n][2 * r], launch.score_scale, -reference[r])),
                     exp2f(fmaf(scores[n][2 * r + 1], launch.score_scale, -reference[r])));
      }
    }
    uint32_t a[kPositions / 16][4];
    if constexpr (kIsWide) {
      SLUICE_UNROLL
      for (int k = 0; k < kPositions / 16; ++k) {
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) a[k][i] = packed[2 * k + i / 2][i % 2];
      }
    } else {
      SLUICE_UNROLL
      for (int n = 0; n < kOwnGroups; ++n) {
        SLUICE_UNROLL
        for (int r = 0; r < 2; ++r) {
          auto* pair = weights + (g + 8 * r) * (kPositions + 8) + (first_group + n) * 8 + 2 * t;
          pair[0] = static_cast<uint16_t>(packed[n][r]);
          pair[1] = static_cast<uint16_t>(packed[n][r] >> 16);
        }
      }
      __syncthreads();
      SLUICE_UNROLL
      for (int k = 0; k < kPositions / 16; ++k)
        LoadMatrix4(a[k], weights + lane % 16 * (kPositions + 8) + k * 16 + lane / 16 * 8);
    }

    // Sums of values and of the rounded weights.
    SLUICE_UNROLL
    for (int k = 0; k < kPositions / 16; k += 2) {
      constexpr uint32_t kOnes[2] = {0x3F803F80u, 0x3F803F80u};
      MmaBf16(weight_sums, a[k], kOnes);
      MmaBf16(weight_sums, a[k + 1], kOnes);
      SLUICE_UNROLL
      for (int j = 0; j < kOwnSteps; ++j) {
        const int step = kIsWide ? j : warp + j * kWarps;
        if (step >= tile.steps()) break;
        uint32_t b[2][2][2];
        tile.LoadValues(b, values, k * 16, step);
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) MmaBf16(sums[j][i % 2], a[k + i / 2], b[i / 2][i % 2]);
      }
    }

    const bool is_last = index + 1 == end_tile;
    if (!is_last && (index + 1) * kPositions % kAttentionSplit == 0) {
      fold((index + 1) * kPositions - item.begin <= kAttentionSplit);
      clear_sums();
    }
    if (launch.num_stages == 1 && !is_last) {
      __syncthreads();
      copy_tile(index + 1);
    }
  }
  if ((item.end - 1) / kAttentionSplit > item.begin / kAttentionSplit) fold(/*is_first=*/false);

  SLUICE_UNROLL
  for (int r = 0; r < 2; ++r) {
    if (last_seen[r] < 0) continue;
    const int row = slice.first_row + item.first_token + token[r];
    uint16_t* out =
        args.out + (static_cast<int64_t>(row) * args.num_heads + head[r]) * tile.head_dim();
    float* partial = nullptr;
    if (item.partial >= 0) {
      partial = args.partials +
                (static_cast<int64_t>(item.partial + token[r]) * args.num_heads + head[r]) *
                    (tile.head_dim() + kPartialExtraNumbers);
      if (t == 0 && (kIsWide || warp == 0)) {
        partial[tile.head_dim()] = largest[r];
        partial[tile.head_dim() + 1] = weight_sums[2 * r];
      }
    }
    const float last_factor = args.cache.v_scale / weight_sums[2 * r];
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      const int step = kIsWide ? j : warp + j * kWarps;
      SLUICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        float first, second;
        const int column = tile.Neighbours(first, second, sums[j], r, step, half);
        if (column >= tile.head_dim()) continue;
        if (partial != nullptr) {
          *reinterpret_cast<float2*>(partial + column) = make_float2(first, second);
        } else {
          *reinterpret_cast<uint32_t*>(out + column) =
              PackBf16(Finish(first, last_factor), Finish(second, last_factor));
        }
      }
    }
  }
}

// Folds the partial results of a merge's rows; a warp for each head.
__global__ void __launch_bounds__(kThreads) MergeKernel(AttentionLaunch launch) {
  constexpr int kMostPairs = 256 / 2 / 32;  // of columns, of a lane
  const AttentionArgs& args = launch.attention;
  const AttentionMerge merge = args.merges[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (head >= args.num_heads || merge.num_partials <= 0) return;
  const int head_dim = args.cache.head_dim;
  for (int token = 0; token < merge.num_tokens; ++token) {
    float largest = kNothing, weights = 0;
    float2 sums[kMostPairs] = {};
    for (int i = 0; i < merge.num_partials; ++i) {
      const float* partial =
          args.partials +
          (static_cast<int64_t>(merge.first_partial + i * merge.num_tokens + token) *
               args.num_heads +
           head) *
              (head_dim + kPartialExtraNumbers);
      float factor = 0, new_factor = 1;
      if (i == 0) {
        largest = partial[head_dim];
        weights = partial[head_dim + 1];
      } else {
        Fold(largest, partial[head_dim], factor, new_factor);
        weights = FoldSum(weights, factor, partial[head_dim + 1], new_factor);
      }
      SLUICE_UNROLL
      for (int j = 0; j < kMostPairs; ++j) {
        const int column = 2 * (lane + 32 * j);
        if (column >= head_dim) continue;
        const float2 sum = *reinterpret_cast<const float2*>(partial + column);
        if (i == 0) {
          sums[j] = sum;
        } else {
          sums[j].x = FoldSum(sums[j].x, factor, sum.x, new_factor);
          sums[j].y = FoldSum(sums[j].y, factor, sum.y, new_factor);
        }
      }
    }
    const float last_factor = args.cache.v_scale / weights;
    uint16_t* out =
        args.out +
        (static_cast<int64_t>(merge.first_row + token) * args.num_heads + head) * head_dim;
    SLUICE_UNROLL
    for (int j = 0; j < kMostPairs; ++j) {
      const int column = 2 * (lane + 32 * j);
      if (column >= head_dim) continue;
      *reinterpret_cast<uint32_t*>(out + column) =
          PackBf16(Finish(sums[j].x, last_factor), Finish(sums[j].y, last_factor));
    }
  }
}

template <bool kIsE4m3, int kDim, int kRows>
void LaunchTiles(const StreamHandle& stream, AttentionLaunch launch, int first_item, int num_items,
                 int parts = 1) {
  using Tile = KvTile<kIsE4m3, kDim>;
  constexpr int kMostShared = 99 * 1024;  // the least that a block may have on any device
  const AttentionArgs& args = launch.attention;
  const Tile tile{args.cache.head_dim};
  const bool is_wide = kRows == kWideTileRows;
  const int own_steps = is_wide ? tile.steps() : (tile.steps() + kWarps - 1) / kWarps;
  int other_bytes = FoldedNumbers(own_steps) * static_cast<int>(sizeof(float));
  if (!is_wide) other_bytes += 16 * (Tile::kPositions + 8) * 2 + kWarps * 16 * 4;
  launch.first_item = first_item;
  launch.num_stages = 2 * 2 * tile.bytes() + other_bytes <= kMostShared ? 2 : 1;
  const int shared_bytes = launch.num_stages * 2 * tile.bytes() + other_bytes;
  Launch<AttentionKernel<kIsE4m3, kDim, kRows>>(
      stream, "attention",
      {.grid_x = static_cast<unsigned>(num_items),
       .grid_y = static_cast<unsigned>(args.cache.num_kv_heads * launch.head_tiles.per_group),
       .threads = kThreads,
       .grid_z = static_cast<unsigned>(parts),
       .shared_bytes = static_cast<unsigned>(shared_bytes)},
      launch);
}

template <bool kIsE4m3, int kDim>
void LaunchItems(const StreamHandle& stream, const AttentionLaunch& launch) {
  const int num_wide = launch.attention.num_wide_items;
  const int num_narrow = launch.attention.num_items - num_wide;
  if constexpr (kDim > 0) {
    LaunchTiles<kIsE4m3, kDim, kWideTileRows>(stream, launch, 0, num_wide);
  } else {
    // Registers would not hold the sums of 16 rows of any size: blocks of 16 rows make a wide tile.
    LaunchTiles<kIsE4m3, kDim, kNarrowTileRows>(stream, launch, 0, num_wide,
                                                kWideTileRows / kNarrowTileRows);
  }
  LaunchTiles<kIsE4m3, kDim, kNarrowTileRows>(stream, launch, num_wide, num_narrow);
}

template <bool kIsE4m3>
void LaunchOfType(const StreamHandle& stream, const AttentionLaunch& launch) {
  switch (launch.attention.cache.head_dim) {
    case 64: return LaunchItems<kIsE4m3, 64>(stream, launch);
    case 128: return LaunchItems<kIsE4m3, 128>(stream, launch);
    default: return LaunchItems<kIsE4m3, 0>(stream, launch);
  }
}

}  // namespace

void LaunchAttention(const StreamHandle& stream, const AttentionArgs& args) {
  AttentionLaunch launch{};
  launch.attention = args;
  launch.head_tiles = device::HeadTilesOf(args.num_heads, args.cache.num_kv_heads);
  launch.score_scale = args.scale * args.cache.k_scale * kLog2E;
  if (args.cache.type == device::Number::kF8) {
    LaunchOfType<true>(stream, launch);
  } else {
    LaunchOfType<false>(stream, launch);
  }
  Launch<MergeKernel>(stream, "attention_merge",
                      {.grid_x = static_cast<unsigned>(args.num_merges),
                       .grid_y = static_cast<unsigned>((args.num_heads + kWarps - 1) / kWarps),
                       .threads = kThreads},
                      launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
