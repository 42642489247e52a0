// The part of attention that one thread block computes: a tile of query rows against a range of
// positions.
//
// In a wide tile, each of the four warps has its own 16 rows. In a narrow tile the warps share 16
// rows: each takes a quarter of the positions for the scores, then a quarter of the columns for the
// sums. Both compute a row's results by the same operations in the same order. Positions are
// processed in tiles at fixed multiples. Weights are rounded to BF16, or to F16 with an E4M3 cache.
// Ranges of kAttentionSplit positions are folded in ascending order, in this file or in the kernel
// that merges partial results.
#pragma once

#include "kernels/cuda/attention_fold.h"
#include "kernels/cuda/attention_fragments.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

struct AttentionLaunch {
  device::AttentionArgs attention;
  int first_item;
  device::HeadTiles head_tiles;
  // Converts q . codes to exponents of 2 or, with a soft cap, to the exponent of e^(2 s / cap).
  float score_scale;
  float cap_exponent;               // the soft cap, in units of exponents of 2
  float one_weight;                 // the amount that a weight of 1 adds to the sum of weights
  int tile_blocks, tile_rows_left;  // positions of a tile divided by block_size, and the remainder
};

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * 32;

// Writes two neighbouring results of a row, from column `column` on. place: row * num_heads + head.
template <bool kMayBeNarrow>
__device__ __forceinline__ void StoreResults(const device::AttentionArgs& args, int64_t place,
                                             int dim, int column, float first, float second) {
  const uint32_t pair = PackBf16(first, second);
  const int64_t at = place * dim + column;
  if constexpr (kMayBeNarrow) {
    if (args.narrow != nullptr) {
      *reinterpret_cast<uint16_t*>(args.narrow + at) = static_cast<uint16_t>(
          PackE4m3(Bf16ToFloat(static_cast<uint16_t>(pair)) / args.narrow_scale,
                   Bf16ToFloat(static_cast<uint16_t>(pair >> 16)) / args.narrow_scale));
      if (column == 0 && place % args.num_heads == 0)
        args.narrow_scales[place / args.num_heads] = args.narrow_scale;
      return;
    }
  }
  *reinterpret_cast<uint32_t*>(args.out + at) = pair;
}

// The members are a thread's registers. A lane's two rows are rows g and g + 8 of its warp's 16,
// with g as in MmaBf16. kCaps: scores have a soft cap.
template <bool kIsE4m3, int kDim, int kRows, bool kCaps>
class AttentionBlock {
 public:
  using Tile = KvTile<kIsE4m3, kDim>;
  static constexpr bool kIsWide = kRows == device::kWideTileRows;
  static constexpr int kWarps = kAttentionWarps;
  static constexpr int kThreads = kAttentionThreads;
  static constexpr int kPositions = Tile::kPositions;

  __device__ __forceinline__ AttentionBlock(const AttentionLaunch& launch,
                                            const device::AttentionItem& item)
      : launch_(launch),
        item_(item),
        tile_{launch.attention.cache.head_dim, launch.attention.latent_dim} {
    const device::AttentionArgs& args = launch.attention;
    const device::AttentionSliceInfo slice = args.slices[item.slice];
    table_ = args.tables + slice.table;
    const int group = args.num_heads / args.cache.num_kv_heads;
    const int heads = launch.head_tiles.heads;
    kv_head_ = static_cast<int>(blockIdx.y) / launch.head_tiles.per_group;
    const int first_head = static_cast<int>(blockIdx.y) % launch.head_tiles.per_group * heads;
    const uint16_t* query[2];
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = (kIsWide ? Warp() : static_cast<int>(blockIdx.z)) * 16 + Lane() / 4 + 8 * r;
      const int token = item.first_token + row / heads, head = first_head + row % heads;
      const bool is_row = token < item.first_token + item.num_tokens && head < group;
      const int position = slice.context + token;
      const int in_chunk = args.chunk > 0 ? position / args.chunk * args.chunk : 0;
      const int in_window =
          args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
      first_seen_[r] = is_row ? max(in_chunk, in_window) : 0x7FFFFFFF;
      last_seen_[r] = -1;
      if (is_row) {
        last_seen_[r] = args.last_seen != nullptr
                            ? args.last_seen[slice.first_row + token]
                            : min(position + args.ahead, slice.context + slice.num_tokens - 1);
      }
      place_[r] = (slice.first_row + token) * args.num_heads + kv_head_ * group + head;
      query[r] = is_row ? args.q + static_cast<int64_t>(place_[r]) * tile_.head_dim() : nullptr;
      if constexpr (!kKeepsQuery) query_[r] = query[r];
    }
    partial_shift_ = (item.partial - slice.first_row - item.first_token) * args.num_heads;
    if constexpr (kKeepsQuery) {
      SLUICE_UNROLL
      for (int step = 0; step < Tile::kMaxSteps; ++step)
        tile_.LoadQuery(kept_query_[step / kLoads][step % kLoads], query, step);
    }
    if constexpr (kIsE4m3) ConvertQueries();
  }

  // Bytes of shared memory: the stages of keys and values; the results of earlier ranges, except
  // those in registers; for narrow tiles, the weights of all warps (unless they overwrite keys) and
  // each warp's largest scores.
  static constexpr int SharedBytes(const Tile& tile) {
    const int weights = kOverwritesKeys ? 0 : 16 * kWeightStride * 2;
    const int narrow = kIsWide ? 0 : weights + kWarps * 16 * 4;
    return kStages * kTiles * tile.bytes() + (StepsInMemory(tile) * 8 + 4) * kThreads * 4 + narrow;
  }

  __device__ __forceinline__ void Run() {
    ClearSums();
    const int first_tile = item_.begin / kPositions;
    const int end_tile = (item_.end + kPositions - 1) / kPositions;
    BeginTiles(first_tile);
    CopyTile(first_tile);
    for (int index = first_tile; index < end_tile; ++index) {
      AsyncWait<0>();
      __syncthreads();  // now this tile has arrived, and no thread reads the previous tile
      const bool is_last = index + 1 == end_tile;
      if (kStages > 1 && !is_last) CopyTile(index + 1);
      float scores[kOwnGroups][4];
      ComputeScores(index, scores);
      uint32_t weights[kPositions / 16][4];
      WeighScores(index, scores, weights);
      AddValues(index, weights);
      if constexpr (kStages == 1) {
        __syncthreads();  // now no thread reads this tile
        if (!is_last) CopyTile(index + 1);
      }
      if (!is_last && (index + 1) * kPositions % device::kAttentionSplit == 0) {
        Fold((index + 1) * kPositions - item_.begin <= device::kAttentionSplit);
        ClearSums();
      }
    }
    if ((item_.end - 1) / device::kAttentionSplit > item_.begin / device::kAttentionSplit)
      Fold(/*is_first=*/false);
    Write();
  }

 private:
  static constexpr bool kKeepsQuery = Tile::kFitsRegisters;
  // Two stages: while one tile is computed, the next one is copied. There is only one stage for
  // heads so wide that two stages would not fit in a block's shared memory; then other blocks
  // compute while one block copies.
  static constexpr int kStages = kDim > 256 || !kCopiesRunAside ? 1 : 2;
  // AMD's GPUs have 512 registers per lane, but gfx942 has only 64 KB of shared memory. On AMD's
  // GPUs, blocks of wide heads therefore keep half of the sums of earlier ranges in registers. If
  // keys and values still do not fit together, the values overwrite the keys: all warps have read
  // the keys when they know the largest scores.
  static constexpr bool kSavesMemory = kWarpsGoInPairs && kDim > 256;
  static constexpr bool kValuesOverwriteKeys = kSavesMemory && !kIsE4m3 && !Tile::kIsLatent;
  // Tiles of a stage: keys and values, or both in one.
  static constexpr int kTiles = Tile::kIsLatent || kValuesOverwriteKeys ? 1 : 2;
  // Whether weights overwrite the keys. All warps have read the keys when they know the largest
  // scores.
  static constexpr bool kOverwritesKeys = kStages == 1 && kTiles == 2;
  static constexpr int kLoads = Tile::kStepsOfLoad;
  // Number of rows of a tile that a warp copies.
  static constexpr int kOwnRows = kPositions / kWarps;
  static constexpr int kOwnGroups = kPositions / 8 / (kIsWide ? 1 : kWarps);  // groups of 8
                                                                              // positions
  static constexpr int kOwnSteps =
      kIsWide ? Tile::kMaxValueSteps : (Tile::kMaxValueSteps + kWarps - 1) / kWarps;
  static constexpr int kStepsInRegisters = kSavesMemory ? kOwnSteps / 2 : 0;
  static constexpr int kWeightStride = kPositions + 8;
  static constexpr float kWeightExponent = WeightExponent(kIsE4m3);

  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }
  // Lane(), for shared memory addresses. In wide tiles it is recomputed in each loop iteration,
  // because no registers are left to keep the addresses of keys and values between tiles.
  static __device__ int LaneOfPlaces() { return kIsWide ? KeptInLoop(Lane()) : Lane(); }
  static __device__ int FirstGroup() { return kIsWide ? 0 : Warp() * kOwnGroups; }
  // The index of this warp's j-th step of 16 columns.
  static __device__ int Step(int j) { return kIsWide ? j : Warp() + j * kWarps; }
  static __host__ __device__ constexpr int OwnSteps(const Tile& tile) {
    return kIsWide ? tile.value_steps() : (tile.value_steps() + kWarps - 1) / kWarps;
  }
  __device__ int NumOwnSteps() const { return OwnSteps(tile_); }
  // Number of own steps whose sums of earlier ranges are in shared memory: those from
  // kStepsInRegisters on.
  static __host__ __device__ constexpr int StepsInMemory(const Tile& tile) {
    const int own = OwnSteps(tile);
    return own < kStepsInRegisters ? 0 : own - kStepsInRegisters;
  }

  // Converts queries to F16.
  __device__ __forceinline__ void ConvertQueries() {
    query_exponents_[0] = query_exponents_[1] = 0;
    if constexpr (kKeepsQuery) {
      SLUICE_UNROLL
      for (int step = 0; step < Tile::kMaxSteps; ++step)
        Tile::FindQueryExponents(kept_query_[step / kLoads][step % kLoads], query_exponents_);
    } else {
      for (int step = 0; step < tile_.steps(); ++step) {
        uint32_t query[4];
        tile_.LoadQuery(query, query_, step);
        Tile::FindQueryExponents(query, query_exponents_);
      }
    }
    Tile::ShareQueryExponents(query_exponents_);
    if constexpr (kKeepsQuery) {
      SLUICE_UNROLL
      for (int step = 0; step < Tile::kMaxSteps; ++step)
        Tile::ConvertQuery(kept_query_[step / kLoads][step % kLoads], query_exponents_);
    }
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r)
      score_scales_[r] = launch_.score_scale * Tile::InverseQueryScale(query_exponents_[r]);
  }
  // Returns the factor that converts a row's products to exponents of 2 or, with a soft cap, to the
  // input of CapScores.
  __device__ float ProductScale(int r) const {
    return kIsE4m3 ? score_scales_[r] : launch_.score_scale;
  }
  // Returns the factor that converts the scores from ComputeScores to exponents of 2.
  __device__ float ScoreScale(int r) const { return kCaps ? 1.0f : ProductScale(r); }

  __device__ unsigned char* Keys(int index) const {
    return SharedMemory() + index % kStages * kTiles * tile_.bytes();
  }
  __device__ unsigned char* Values(int index) const {
    return Keys(index) + (kTiles - 1) * tile_.bytes();
  }
  // This thread's results of earlier ranges, except those in registers: number i is at
  // [i * kThreads].
  __device__ float* Folded() const {
    return reinterpret_cast<float*>(Keys(0) + kStages * kTiles * tile_.bytes()) + threadIdx.x;
  }
  // Number r (0 or 1): the largest score of row r; number 2 + r: its sum of weights.
  __device__ float& FoldedOfRow(int number) {
    return Folded()[(StepsInMemory(tile_) * 8 + number) * kThreads];
  }
  // The i-th sum of own step j.
  __device__ __forceinline__ float& FoldedSum(int j, int i) {
    if (j < kStepsInRegisters) return folded_[j * 8 + i];
    return Folded()[((j - kStepsInRegisters) * 8 + i) * kThreads];
  }
  __device__ float* BehindFolded() const {
    return Folded() - threadIdx.x + (StepsInMemory(tile_) * 8 + 4) * kThreads;
  }
  // [16, kWeightStride]
  __device__ uint16_t* SharedWeights() const {
    if constexpr (kOverwritesKeys) return reinterpret_cast<uint16_t*>(Keys(0));
    return reinterpret_cast<uint16_t*>(BehindFolded());
  }
  // [kWarps, 16]
  __device__ float* SharedLargest() const {
    if constexpr (kOverwritesKeys) return BehindFolded();
    return reinterpret_cast<float*>(SharedWeights() + 16 * kWeightStride);
  }

  // Sets the place of this lane's row in the first tile; CopyTile then advances it tile by tile.
  __device__ __forceinline__ void BeginTiles(int index) {
    const int position = index * kPositions + Warp() * kOwnRows + Lane();
    next_table_place_ = position / launch_.attention.cache.block_size;
    next_row_in_block_ = position % launch_.attention.cache.block_size;
    LoadBlock(index);
  }
  // Loads the block number of this lane's row of tile `index`, long before the number is used.
  __device__ __forceinline__ void LoadBlock(int index) {
    const int position = index * kPositions + Warp() * kOwnRows + Lane();
    if (Lane() < kOwnRows && position >= item_.begin && position < item_.end)
      next_block_ = table_[next_table_place_];
    else
      next_block_ = Tile::kNoRow;
  }
  // Copies tile `index`, or its keys if values overwrite them. REQUIRES: tiles are copied in
  // ascending order.
  __device__ __forceinline__ void CopyTile(int index) {
    const device::KvArrays& cache = launch_.attention.cache;
    const int32_t row =
        next_block_ == Tile::kNoRow
            ? Tile::kNoRow
            : next_block_ * cache.block_rows + kv_head_ * cache.block_size + next_row_in_block_;
    tile_.template Copy<kOwnRows, true, !kValuesOverwriteKeys>(
        Keys(index), Values(index), static_cast<const unsigned char*>(cache.k),
        static_cast<const unsigned char*>(cache.v), Warp() * kOwnRows, row);
    if constexpr (kValuesOverwriteKeys) copied_row_ = row;
    AsyncCommit();
    next_table_place_ += launch_.tile_blocks;
    next_row_in_block_ += launch_.tile_rows_left;
    if (next_row_in_block_ >= cache.block_size) {
      next_row_in_block_ -= cache.block_size;
      ++next_table_place_;
    }
    LoadBlock(index + 1);
  }

  // Copies the values of the tile whose keys CopyTile copied last. REQUIRES: no warp still reads
  // the keys.
  __device__ __forceinline__ void CopyValues(int index) {
    const device::KvArrays& cache = launch_.attention.cache;
    tile_.template Copy<kOwnRows, false, true>(
        Keys(index), Values(index), static_cast<const unsigned char*>(cache.k),
        static_cast<const unsigned char*>(cache.v), Warp() * kOwnRows, copied_row_);
    AsyncCommit();
    AsyncWait<0>();
  }

  __device__ __forceinline__ void ClearSums() {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) largest_[r] = kNoScore;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) weight_sums_[i] = 0;
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) sums_[j][i / 4][i % 4] = 0;
    }
  }

  // Computes products of queries and keys; positions that a row does not see get kNoScore.
  __device__ __forceinline__ void ComputeScores(int index, float (&scores)[kOwnGroups][4]) const {
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
    }
    if constexpr (kKeepsQuery) {
      SLUICE_UNROLL
      for (int i = 0; i < Tile::kMaxSteps / kLoads; ++i)
        AddScores(index, i * kLoads, kept_query_[i], scores);
    } else {
      for (int step = 0; step < tile_.steps(); step += kLoads) {
        uint32_t query[kLoads][4];
        SLUICE_UNROLL
        for (int i = 0; i < kLoads; ++i) {
          tile_.LoadQuery(query[i], query_, step + i);
          if constexpr (kIsE4m3) Tile::ConvertQuery(query[i], query_exponents_);
        }
        AddScores(index, step, query, scores);
      }
    }
    if constexpr (kCaps) CapScores(scores);
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int position = index * kPositions + (FirstGroup() + n) * 8 + 2 * (Lane() % 4) + i % 2;
        if (position < first_seen_[i / 2] || position > last_seen_[i / 2]) scores[n][i] = kNoScore;
      }
    }
  }

  // Turns products into exponents of 2: cap * tanh(s / cap), with tanh(x) = 1 - 2 / (e^(2 x) + 1).
  __device__ __forceinline__ void CapScores(float (&scores)[kOwnGroups][4]) const {
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float power = exp2f(scores[n][i] * ProductScale(i / 2));
        scores[n][i] = launch_.cap_exponent * (1.0f - 2.0f / (power + 1.0f));
      }
    }
  }

  __device__ __forceinline__ void AddScores(int index, int step, const uint32_t (&query)[kLoads][4],
                                            float (&scores)[kOwnGroups][4]) const {
    const int lane = LaneOfPlaces();
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      uint32_t b[kLoads][2];
      tile_.LoadKeys(b, Keys(index), (FirstGroup() + n) * 8, step, lane);
      SLUICE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        if (step + i < tile_.steps()) Tile::Multiply(scores[n], query[i], b[i]);
      }
    }
  }

  // Computes the weights of all positions of the tile as operands a, relative to the largest score
  // so far, and rescales the previous sums to it. Copies the values if they overwrite keys.
  __device__ __forceinline__ void WeighScores(int index, const float (&scores)[kOwnGroups][4],
                                              uint32_t (&weights)[kPositions / 16][4]) {
    float tile_largest[2];
    FindLargest(scores, tile_largest);
    if constexpr (kValuesOverwriteKeys) CopyValues(index);
    float factor[2], reference[2];
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float next = fmaxf(largest_[r], tile_largest[r] * ScoreScale(r));
      reference[r] = ExponentReference(next);
      factor[r] = exp2f(largest_[r] - reference[r]);
      largest_[r] = next;
      reference[r] -= kWeightExponent;
    }
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) weight_sums_[i] *= factor[i / 2];
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) sums_[j][i / 4][i % 4] *= factor[i % 4 / 2];
    }
    uint32_t own[kOwnGroups][2];
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float first = fmaf(scores[n][2 * r], ScoreScale(r), -reference[r]);
        const float second = fmaf(scores[n][2 * r + 1], ScoreScale(r), -reference[r]);
        own[n][r] = Tile::Pack(exp2f(first), exp2f(second));
      }
    }
    if constexpr (kIsWide) {
      SLUICE_UNROLL
      for (int k = 0; k < kPositions / 16; ++k) {
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) weights[k][i] = own[2 * k + i / 2][i % 2];
      }
    } else {
      ShareWeights(own, weights);
    }
  }

  // Finds the largest score of each of this lane's rows in the tile.
  __device__ __forceinline__ void FindLargest(const float (&scores)[kOwnGroups][4],
                                              float (&tile_largest)[2]) const {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float value = kNoScore;
      SLUICE_UNROLL
      for (int n = 0; n < kOwnGroups; ++n)
        value = fmaxf(value, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      SLUICE_UNROLL
      for (int mask = 1; mask <= 2; mask *= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
      tile_largest[r] = value;
    }
    if constexpr (!kIsWide) {
      float* const shared = SharedLargest() + Lane() / 4;
      if (Lane() % 4 == 0) {
        shared[Warp() * 16] = tile_largest[0];
        shared[Warp() * 16 + 8] = tile_largest[1];
      }
      __syncthreads();
      SLUICE_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) {
        tile_largest[0] = fmaxf(tile_largest[0], shared[warp * 16]);
        tile_largest[1] = fmaxf(tile_largest[1], shared[warp * 16 + 8]);
      }
    }
  }

  // Gathers the softmax weights that each warp computed, so that every warp has all weights.
  __device__ __forceinline__ void ShareWeights(const uint32_t (&own)[kOwnGroups][2],
                                               uint32_t (&weights)[kPositions / 16][4]) const {
    uint16_t* const shared = SharedWeights();
    SLUICE_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      SLUICE_UNROLL
      for (int r = 0; r < 2; ++r) {
        uint16_t* const pair = shared + (Lane() / 4 + 8 * r) * kWeightStride +
                               (FirstGroup() + n) * 8 + 2 * (Lane() % 4);
        pair[0] = static_cast<uint16_t>(own[n][r]);
        pair[1] = static_cast<uint16_t>(own[n][r] >> 16);
      }
    }
    __syncthreads();
    SLUICE_UNROLL
    for (int k = 0; k < kPositions / 16; ++k)
      LoadMatrix4(weights[k], shared + Lane() % 16 * kWeightStride + k * 16 + Lane() / 16 * 8);
  }

  // Adds weights times values to the sums. Adds the rounded weights to the weight sums.
  __device__ __forceinline__ void AddValues(int index,
                                            const uint32_t (&weights)[kPositions / 16][4]) {
    const int lane = LaneOfPlaces();
    SLUICE_UNROLL
    for (int k = 0; k < kPositions / 16; k += 2) {
      const uint32_t ones[2] = {Tile::kOnes, Tile::kOnes};
      Tile::Multiply(weight_sums_, weights[k], ones);
      Tile::Multiply(weight_sums_, weights[k + 1], ones);
      SLUICE_UNROLL
      for (int j = 0; j < kOwnSteps; ++j) {
        // If warps work in pairs, a warp may compute products whose results are not used.
        const int step = kWarpsGoInPairs ? min(Step(j), tile_.value_steps() - 1) : Step(j);
        if ((kWarpsGoInPairs && !kIsWide ? Step(j) / 2 * 2 : step) >= tile_.value_steps()) break;
        uint32_t b[2][2][2];
        tile_.LoadValues(b, Values(index), k * 16, step, lane);
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i)
          Tile::Multiply(sums_[j][i % 2], weights[k + i / 2], b[i / 2][i % 2]);
      }
    }
  }

  // Combines the results of the range that just ended with those of earlier ranges. Stores the
  // combined results for the next range, and in the members.
  __device__ __forceinline__ void Fold(bool is_first) {
    float factor[2] = {0, 0}, new_factor[2] = {1, 1};
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float& weight_sum = weight_sums_[2 * r];
      if (!is_first) {
        float largest = FoldedOfRow(r);
        FoldLargest(largest, largest_[r], factor[r], new_factor[r]);
        largest_[r] = largest;
        weight_sum = FoldSum(FoldedOfRow(2 + r), factor[r], weight_sum, new_factor[r]);
      }
      FoldedOfRow(r) = largest_[r];
      FoldedOfRow(2 + r) = weight_sum;
    }
    SLUICE_UNROLL
    for (int j = 0; j < kOwnSteps; ++j) {
      if (j >= NumOwnSteps()) break;
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) {
        float& sum = sums_[j][i / 4][i % 4];
        float& before = FoldedSum(j, i);
        const int r = i % 4 / 2;
        if (!is_first) sum = FoldSum(before, factor[r], sum, new_factor[r]);
        before = sum;
      }
    }
  }

  // Writes the rows' results or partial results.
  __device__ __forceinline__ void Write() const {
    const device::AttentionArgs& args = launch_.attention;
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (last_seen_[r] < 0) continue;
      const bool is_partial = item_.partial >= 0;
      float* const partial =
          is_partial ? args.partials + static_cast<int64_t>(place_[r] + partial_shift_) *
                                           (tile_.value_dim() + device::kPartialExtraNumbers)
                     : nullptr;
      if (is_partial && Lane() % 4 == 0 && (kIsWide || Warp() == 0)) {
        partial[tile_.value_dim()] = largest_[r];
        partial[tile_.value_dim() + 1] = weight_sums_[2 * r];
      }
      const float* const sink =
          args.sinks == nullptr ? nullptr : args.sinks + place_[r] % args.num_heads;
      const float last_factor = LastFactor(args.cache.v_scale, largest_[r], weight_sums_[2 * r],
                                           sink, launch_.one_weight);
      SLUICE_UNROLL
      for (int j = 0; j < kOwnSteps; ++j) {
        SLUICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          float first, second;
          const int column = tile_.Neighbours(first, second, sums_[j], r, Step(j), half);
          if (column >= tile_.value_dim()) continue;
          if (is_partial) {
            *reinterpret_cast<float2*>(partial + column) = make_float2(first, second);
          } else {
            StoreResults<!kIsWide>(args, place_[r], tile_.value_dim(), column,
                                   FinishSum(first, last_factor), FinishSum(second, last_factor));
          }
        }
      }
    }
  }

  const AttentionLaunch& launch_;
  const device::AttentionItem item_;
  const Tile tile_;
  const int32_t* table_;  // block table
  // The row of the tile that this lane copies next: its index in the block table, its block (kNoRow
  // if the item has no such position), and its row within the block.
  int next_table_place_, next_row_in_block_;
  int32_t next_block_;
  int32_t copied_row_;  // if kValuesOverwriteKeys: the row of the cache that this lane copied last
  int kv_head_;
  // First and last position that a row sees; no positions if there is no row.
  int first_seen_[2], last_seen_[2];
  int place_[2];                 // index of the row: row of the step * num_heads + head
  int partial_shift_;            // offset from place_ to the place of partial results
  const uint16_t* query_[2];     // if !kKeepsQuery
  uint32_t query_exponents_[2];  // if kIsE4m3
  float score_scales_[2];        // if kIsE4m3
  uint32_t kept_query_[kKeepsQuery ? Tile::kMaxSteps / kLoads : 1][kLoads][4];  // if kKeepsQuery

  // The current range's results, relative to the largest score, which is an exponent of 2. All
  // columns of weight_sums_ are equal.
  float largest_[2];
  float weight_sums_[4];
  float sums_[kOwnSteps][2][4];
  float folded_[kStepsInRegisters > 0 ? kStepsInRegisters * 8 : 1];  // sums of earlier ranges
};

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
