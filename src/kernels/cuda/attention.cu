// Paged attention: a thread block for each item and head tile (attention_block.h), then the
// combination of partial results.
#include "kernels/cuda/attention_block.h"
#include "kernels/cuda/attention_fold.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::AttentionArgs;
using device::AttentionMerge;
using device::kNarrowTileRows;
using device::kPartialExtraNumbers;
using device::kWideTileRows;

// Number of blocks per multiprocessor. Blocks of narrow tiles wait for memory, so several of them
// run together.
[[maybe_unused]] constexpr int BlocksTogether(bool is_e4m3, int dim, int rows) {
  if (dim > 256) return 2;  // limited by shared memory
  return rows == kWideTileRows ? 1 : is_e4m3 ? 4 : 3;
}

template <bool kIsE4m3, int kDim, int kRows, bool kCaps>
__global__ void __launch_bounds__(kAttentionThreads, BlocksTogether(kIsE4m3, kDim, kRows))
    AttentionKernel(AttentionLaunch launch) {
  BeginOverlapping();
  const device::AttentionItem item =
      launch.attention.items[launch.first_item + static_cast<int>(blockIdx.x)];
  if (item.slice < 0) return;
  AttentionBlock<kIsE4m3, kDim, kRows, kCaps>(launch, item).Run();
}

// Combines the partial results of a merge's rows. One warp per head, of at most kMostDim numbers.
template <int kMostDim>
__global__ void __launch_bounds__(kAttentionThreads) MergeKernel(AttentionLaunch launch) {
  BeginOverlapping();
  constexpr int kMostPairs = kMostDim / 2 / 32;  // pairs of columns per lane
  constexpr int kAtOnce = 1024 / kMostDim;       // number of partial results that are read together
  const AttentionArgs& args = launch.attention;
  const AttentionMerge merge = args.merges[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head =
      static_cast<int>(blockIdx.y) * kAttentionWarps + static_cast<int>(threadIdx.x) / 32;
  if (head >= args.num_heads || merge.num_partials <= 0) return;
  const int head_dim = args.latent_dim > 0 ? args.latent_dim : args.cache.head_dim;
  for (int token = 0; token < merge.num_tokens; ++token) {
    float largest = kNoScore, weights = 0;
    float2 sums[kMostPairs] = {};
    for (int first = 0; first < merge.num_partials; first += kAtOnce) {
      float part_largest[kAtOnce], part_weights[kAtOnce];
      float2 part_sums[kAtOnce][kMostPairs];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= merge.num_partials) continue;
        const float* partial =
            args.partials +
            (static_cast<int64_t>(merge.first_partial + (first + i) * merge.num_tokens + token) *
                 args.num_heads +
             head) *
                (head_dim + kPartialExtraNumbers);
        part_largest[i] = partial[head_dim];
        part_weights[i] = partial[head_dim + 1];
        SLUICE_UNROLL
        for (int j = 0; j < kMostPairs; ++j) {
          const int column = 2 * (lane + 32 * j);
          if (column < head_dim)
            part_sums[i][j] = *reinterpret_cast<const float2*>(partial + column);
        }
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= merge.num_partials) continue;
        float factor = 0, new_factor = 1;
        if (first + i == 0) {
          largest = part_largest[i];
          weights = part_weights[i];
        } else {
          FoldLargest(largest, part_largest[i], factor, new_factor);
          weights = FoldSum(weights, factor, part_weights[i], new_factor);
        }
        SLUICE_UNROLL
        for (int j = 0; j < kMostPairs; ++j) {
          if (2 * (lane + 32 * j) >= head_dim) continue;
          if (first + i == 0) {
            sums[j] = part_sums[i][j];
          } else {
            sums[j].x = FoldSum(sums[j].x, factor, part_sums[i][j].x, new_factor);
            sums[j].y = FoldSum(sums[j].y, factor, part_sums[i][j].y, new_factor);
          }
        }
      }
    }
    const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const float last_factor =
        LastFactor(args.cache.v_scale, largest, weights, sink, launch.one_weight);
    const int64_t place = static_cast<int64_t>(merge.first_row + token) * args.num_heads + head;
    SLUICE_UNROLL
    for (int j = 0; j < kMostPairs; ++j) {
      const int column = 2 * (lane + 32 * j);
      if (column >= head_dim) continue;
      StoreResults<true>(args, place, head_dim, column, FinishSum(sums[j].x, last_factor),
                         FinishSum(sums[j].y, last_factor));
    }
  }
}

template <bool kIsE4m3, int kDim, int kRows, bool kCaps>
void LaunchTiles(const StreamHandle& stream, AttentionLaunch launch, int first_item, int num_items,
                 int parts = 1) {
  using Block = AttentionBlock<kIsE4m3, kDim, kRows, kCaps>;
  static_assert(Block::SharedBytes({16 * Block::Tile::kMaxSteps,
                                    16 * Block::Tile::kMaxValueSteps}) <= kMostSharedBytes,
                "what a block may have on every device");
  const AttentionArgs& args = launch.attention;
  const typename Block::Tile tile{args.cache.head_dim, args.latent_dim};
  launch.first_item = first_item;
  launch.tile_blocks = Block::Tile::kPositions / args.cache.block_size;
  launch.tile_rows_left = Block::Tile::kPositions % args.cache.block_size;
  Launch<AttentionKernel<kIsE4m3, kDim, kRows, kCaps>>(
      stream, "attention",
      {.grid_x = static_cast<unsigned>(num_items),
       .grid_y = static_cast<unsigned>(args.cache.num_kv_heads * launch.head_tiles.per_group),
       .threads = kAttentionThreads,
       .grid_z = static_cast<unsigned>(parts),
       .shared_bytes = static_cast<unsigned>(Block::SharedBytes(tile)),
       .overlaps = true},
      launch);
}

template <bool kIsE4m3, int kDim, bool kCaps = false>
void LaunchItems(const StreamHandle& stream, const AttentionLaunch& launch) {
  const int num_wide = launch.attention.num_wide_items;
  const int num_narrow = launch.attention.num_items - num_wide;
  // AMD's GPUs move the operands of products from lane to lane, so only heads of 64 elements fit in
  // registers.
  constexpr bool kFits = KvTile<kIsE4m3, kDim>::kFitsRegisters && (!kWarpsGoInPairs || kDim <= 64);
  if constexpr (kFits) {
    LaunchTiles<kIsE4m3, kDim, kWideTileRows, kCaps>(stream, launch, 0, num_wide);
  } else {
    // The registers would not hold the sums of 16 rows per warp, so several blocks of 16 rows form
    // a wide tile.
    LaunchTiles<kIsE4m3, kDim, kNarrowTileRows, kCaps>(stream, launch, 0, num_wide,
                                                       kWideTileRows / kNarrowTileRows);
  }
  LaunchTiles<kIsE4m3, kDim, kNarrowTileRows, kCaps>(stream, launch, num_wide, num_narrow);
}

template <bool kIsE4m3>
void LaunchOfType(const StreamHandle& stream, const AttentionLaunch& launch) {
  if (launch.attention.soft_cap > 0) {
    // Few models have soft caps, so most head sizes share one kernel.
    if (launch.attention.cache.head_dim == 128)
      return LaunchItems<kIsE4m3, 128, true>(stream, launch);
    return LaunchItems<kIsE4m3, 0, true>(stream, launch);
  }
  if (launch.attention.latent_dim > 0) return LaunchItems<kIsE4m3, kLatentDim>(stream, launch);
  switch (launch.attention.cache.head_dim) {
    case 64: return LaunchItems<kIsE4m3, 64>(stream, launch);
    case 128: return LaunchItems<kIsE4m3, 128>(stream, launch);
    case 512: return LaunchItems<kIsE4m3, 512>(stream, launch);
    default: return LaunchItems<kIsE4m3, 0>(stream, launch);
  }
}

}  // namespace

void LaunchAttention(const StreamHandle& stream, const AttentionArgs& args) {
  AttentionLaunch launch{};
  launch.attention = args;
  device::KvArrays& cache = launch.attention.cache;
  if (cache.block_rows == 0) cache.block_rows = cache.num_kv_heads * cache.block_size;
  launch.head_tiles = device::HeadTilesOf(args.num_heads, args.cache.num_kv_heads);
  launch.score_scale = args.scale * args.cache.k_scale * kLog2E;
  if (args.soft_cap > 0) {
    launch.score_scale *= 2 / args.soft_cap;
    launch.cap_exponent = args.soft_cap * kLog2E;
  }
  const bool is_e4m3 = args.cache.type == ElementType::kF8E4M3;
  launch.one_weight = static_cast<float>(1 << WeightExponent(is_e4m3));
  if (is_e4m3) {
    LaunchOfType<true>(stream, launch);
  } else {
    LaunchOfType<false>(stream, launch);
  }
  const LaunchShape merges = {
      .grid_x = static_cast<unsigned>(args.num_merges),
      .grid_y = static_cast<unsigned>((args.num_heads + kAttentionWarps - 1) / kAttentionWarps),
      .threads = kAttentionThreads,
      .overlaps = true};
  if ((args.latent_dim > 0 ? args.latent_dim : cache.head_dim) <= 256)
    Launch<MergeKernel<256>>(stream, "attention_merge", merges, launch);
  else
    Launch<MergeKernel<512>>(stream, "attention_merge", merges, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
