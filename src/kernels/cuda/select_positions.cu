// Two kernels process each part of the rows. One computes scores; its tiles of keys in shared
// memory are shared by consecutive rows of a sequence. The other selects each row's largest scores,
// digit by digit of their keys, and writes the cache places of the selected positions in order.
#include <math.h>

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/ordered_key.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::kIndexTile;
using device::SelectPositionsArgs;

constexpr int kScoreWarps = kIndexTile / 16;  // each warp scores 16 positions of a tile
constexpr int kScoreThreads = kScoreWarps * 32;
constexpr int kRowsOfBlock = 8;  // number of rows that share the keys in shared memory
// Maximum number of blocks per group of rows; each block takes every 512th tile.
constexpr unsigned kMostTiles = 512;

constexpr int kSelectThreads = 512;
constexpr int kSelectWarps = kSelectThreads / 32;
constexpr int kDigitValues = 256;

struct SelectLaunch {
  SelectPositionsArgs args;
  int64_t first_row, num_rows;  // the part
  int64_t stride;               // row stride of the scores
};

// Number of elements of a key in shared memory: whole steps of 16, then 8 elements, so that the
// rows of a matrix are in different banks.
__host__ __device__ __forceinline__ int KeyStride(int dim) {
  return (dim + 15) / 16 * 16 + 8;
}

// Called by all threads of a block. Copies the keys of positions [first, last], at most kIndexTile
// positions, as BF16. Writes zeros after the last key, and after the elements of each key.
__device__ __forceinline__ void CopyKeys(const SelectPositionsArgs& args, const int32_t* table,
                                         int first, int last, uint16_t* keys) {
  const int stride = KeyStride(args.dim), pairs = stride / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kIndexTile * pairs; i += kScoreThreads) {
    const int position = first + i / pairs, column = i % pairs * 2;
    uint32_t pair = 0;
    if (position <= last && column < args.dim) {
      const int64_t slot =
          int64_t{table[position / args.block_size]} * args.block_size + position % args.block_size;
      const int64_t at = slot * args.dim + column;
      if (args.type == ElementType::kBF16) {
        pair = *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(args.keys) + at);
      } else {
        const auto* const codes = static_cast<const uint8_t*>(args.keys) + at;
        pair = PackBf16(E4m3ToFloat(codes[0]), E4m3ToFloat(codes[1]));
      }
    }
    *reinterpret_cast<uint32_t*>(keys + i / pairs * stride + column) = pair;
  }
}

// Called by a warp. Computes the scores of a row for the 16 positions whose keys begin at `keys`.
// Lane 4g (and each lane of its group of four) gets the scores of positions g and g + 8.
__device__ __forceinline__ void ScorePositions(const SelectPositionsArgs& args, int64_t row,
                                               const uint16_t* keys, float (&scores)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int stride = KeyStride(args.dim);
  const uint16_t* const own_keys = keys + lane % 16 * stride + lane / 16 * 8;
  scores[0] = scores[1] = 0;
  for (int first = 0; first < args.heads; first += 8) {
    const uint16_t* const q = args.q + (row * args.heads + first + g) * args.dim;
    float sums[4] = {};
    for (int step = 0; step < args.dim; step += 16) {
      uint32_t a[4], b[2];
      LoadMatrix4(a, own_keys + step);
      SLUICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = step + 2 * t + 8 * i;
        b[i] = first + g < args.heads && column < args.dim
                   ? *reinterpret_cast<const uint32_t*>(q + column)
                   : 0;
      }
      MmaBf16(sums, a, b);
    }
    SLUICE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int head = first + 2 * t + i;
      const float weight = head < args.heads ? args.weights[row * args.heads + head] : 0;
      SLUICE_UNROLL
      for (int r = 0; r < 2; ++r) {
        // Not fmaxf, which drops NaN.
        const float sum = sums[2 * r + i] < 0 ? 0 : sums[2 * r + i];
        if (head < args.heads) scores[r] = fmaf(weight, sum, scores[r]);
      }
    }
  }
  SLUICE_UNROLL
  for (int r = 0; r < 2; ++r) {
    SLUICE_UNROLL
    for (int mask = 1; mask <= 2; mask *= 2)
      scores[r] += __shfl_xor_sync(0xFFFFFFFFu, scores[r], mask);
  }
}

__global__ void __launch_bounds__(kScoreThreads) IndexScoresKernel(SelectLaunch launch) {
  const SelectPositionsArgs& args = launch.args;
  auto* const keys = reinterpret_cast<uint16_t*>(SharedMemory());
  const int64_t begin = int64_t{blockIdx.y} * kRowsOfBlock;
  const int64_t end =
      begin + kRowsOfBlock < launch.num_rows ? begin + kRowsOfBlock : launch.num_rows;
  const device::IndexRow* const rows = args.index_rows + launch.first_row;
  const auto warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t row = begin; row < end;) {
    // Rows of a sequence have the same table, and the last row sees the most positions.
    int64_t next = row + 1;
    while (next < end && rows[next].table == rows[row].table) ++next;
    const int last = rows[next - 1].position;
    const int32_t* const table = args.tables + rows[row].table;
    for (int tile = static_cast<int>(blockIdx.x) * kIndexTile; last >= args.top_k && tile <= last;
         tile += static_cast<int>(gridDim.x) * kIndexTile) {
      __syncthreads();  // now no thread reads the previous tile
      CopyKeys(args, table, tile, last, keys);
      __syncthreads();
      for (int64_t one = row; one < next; ++one) {
        const int position = rows[one].position;
        if (position < args.top_k || tile > position) continue;
        float scores[2];
        ScorePositions(args, launch.first_row + one, keys + warp * 16 * KeyStride(args.dim),
                       scores);
        SLUICE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const int at = tile + warp * 16 + lane / 4 + 8 * r;
          if (lane % 4 == 0 && at <= position) args.scores[one * launch.stride + at] = scores[r];
        }
      }
    }
    row = next;
  }
}

// Data that the threads of a selecting block share.
struct SelectShared {
  uint32_t counts[kDigitValues];
  uint32_t found, above;
  int32_t warp_above[kSelectWarps], warp_equal[kSelectWarps];
};

// Keys compare in the same order as the scores. NaN has the key of minus infinity.
__device__ __forceinline__ uint32_t KeyOfScore(float score) {
  return static_cast<uint32_t>(OrderedKey(score == score ? score : -INFINITY, 0) >> 32);
}

// Called by all threads of a block. Finds the key of the top_k-th largest of `count` scores.
// `remaining`: number of scores with this key that belong to the top_k.
__device__ __forceinline__ uint32_t FindKey(const float* scores, int32_t count, uint32_t top_k,
                                            SelectShared& shared, uint32_t& remaining) {
  const auto thread = static_cast<int>(threadIdx.x);
  uint32_t prefix = 0;
  remaining = top_k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread; i < kDigitValues; i += kSelectThreads) shared.counts[i] = 0;
    __syncthreads();
    for (int32_t i = thread; i < count; i += kSelectThreads) {
      const uint32_t key = KeyOfScore(scores[i]);
      if (shift == 24 || key >> (shift + 8) == prefix)
        atomicAdd(&shared.counts[key >> shift & 0xFF], 1u);
    }
    __syncthreads();
    if (thread < 32) {
      constexpr int kEach = kDigitValues / 32;
      // The largest of the kEach values of this lane.
      const int top = kDigitValues - 1 - thread * kEach;
      uint32_t own = 0;
      for (int i = 0; i < kEach; ++i) own += shared.counts[top - i];
      uint32_t sum = own;  // sum over the values of this lane and all larger values
      for (unsigned delta = 1; delta < 32; delta <<= 1) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, delta);
        if (threadIdx.x >= delta) sum += other;
      }
      const unsigned reaches = __ballot_sync(0xFFFFFFFFu, sum >= remaining);
      if (thread == __ffs(static_cast<int>(reaches)) - 1) {
        uint32_t above = sum - own;
        int value = top;
        while (above + shared.counts[value] < remaining) above += shared.counts[value--];
        shared.found = static_cast<uint32_t>(value);
        shared.above = above;
      }
    }
    __syncthreads();
    prefix = prefix << 8 | shared.found;
    remaining -= shared.above;
    __syncthreads();
  }
  return prefix;
}

// A block for each row.
__global__ void __launch_bounds__(kSelectThreads) SelectPositionsKernel(SelectLaunch launch) {
  const SelectPositionsArgs& args = launch.args;
  SelectShared& shared = *reinterpret_cast<SelectShared*>(SharedMemory());
  const int64_t row = launch.first_row + blockIdx.x;
  const device::IndexRow index = args.index_rows[row];
  const int32_t* const table = args.tables + index.table;
  int32_t* const chosen = args.chosen + row * args.top_k;
  const int32_t count = index.position + 1;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto place = [&](int32_t position) {
    return table[position / args.block_size] * args.block_rows + position % args.block_size;
  };
  if (count <= args.top_k) {
    for (int32_t i = thread; i < count; i += kSelectThreads) chosen[i] = place(i);
    return;
  }
  const float* const scores = args.scores + blockIdx.x * launch.stride;
  uint32_t remaining = 0;
  const uint32_t least =
      FindKey(scores, count, static_cast<uint32_t>(args.top_k), shared, remaining);
  const auto most_equal = static_cast<int32_t>(remaining);
  const int lane = thread % 32, warp = thread / 32;
  const unsigned lanes_before = (1u << lane) - 1;
  int32_t above = 0, equal = 0;  // counts among earlier positions
  for (int32_t first = 0; first < count; first += kSelectThreads) {
    const int32_t position = first + thread;
    const uint32_t key = position < count ? KeyOfScore(scores[position]) : 0;
    const bool is_above = position < count && key > least;
    const bool is_equal = position < count && key == least;
    const unsigned warp_above = __ballot_sync(0xFFFFFFFFu, is_above);
    const unsigned warp_equal = __ballot_sync(0xFFFFFFFFu, is_equal);
    if (lane == 0) {
      shared.warp_above[warp] = __popc(warp_above);
      shared.warp_equal[warp] = __popc(warp_equal);
    }
    __syncthreads();
    int32_t own_above = above + __popc(warp_above & lanes_before);
    int32_t own_equal = equal + __popc(warp_equal & lanes_before);
    for (int i = 0; i < kSelectWarps; ++i) {
      if (i < warp) {
        own_above += shared.warp_above[i];
        own_equal += shared.warp_equal[i];
      }
      above += shared.warp_above[i];
      equal += shared.warp_equal[i];
    }
    // Takes the earliest positions among equal scores.
    if (is_above || (is_equal && own_equal < most_equal)) {
      const int32_t taken_equal = own_equal < most_equal ? own_equal : most_equal;
      chosen[own_above + taken_equal] = place(position);
    }
    __syncthreads();
  }
}

}  // namespace

void LaunchSelectPositions(const StreamHandle& stream, const SelectPositionsArgs& args) {
  SelectLaunch launch{args, 0, 0, device::SelectScoreStride(args.max_context)};
  const int64_t at_once = device::SelectRowsAtOnce(args.max_context);
  for (; launch.first_row < args.rows; launch.first_row += at_once) {
    const int64_t left = args.rows - launch.first_row;
    launch.num_rows = left < at_once ? left : at_once;
    if (args.max_context > args.top_k) {
      const int64_t tiles = launch.stride / kIndexTile;
      LaunchShape scores;
      scores.grid_x = tiles < kMostTiles ? static_cast<unsigned>(tiles) : kMostTiles;
      scores.grid_y = static_cast<unsigned>((launch.num_rows + kRowsOfBlock - 1) / kRowsOfBlock);
      scores.threads = kScoreThreads;
      scores.shared_bytes =
          static_cast<unsigned>(kIndexTile * KeyStride(args.dim) * int{sizeof(uint16_t)});
      Launch<IndexScoresKernel>(stream, "index_scores", scores, launch);
    }
    LaunchShape select;
    select.grid_x = static_cast<unsigned>(launch.num_rows);
    select.threads = kSelectThreads;
    select.shared_bytes = sizeof(SelectShared);
    Launch<SelectPositionsKernel>(stream, "select_positions", select, launch);
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
