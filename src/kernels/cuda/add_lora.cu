// Adds the contribution of adapters to a linear layer or an embedding, in two launches: h = x A^T
// for every row with an adapter, then h B^T, added to the results.
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

using device::AddLoraArgs;
using device::kLoraRows;
using device::LoraFactor;
using device::LoraModulePlace;

constexpr int kLoraRanks = 4;                 // number of rows of A per block
constexpr unsigned kLoraShrinkThreads = 256;  // maximum; the number in use depends only on `cols`
constexpr unsigned kLoraExpandThreads = 64;
constexpr int kLoraLookupThreads = 64;
constexpr int kLoraShrinkWarps = kLoraShrinkThreads / 32;

struct AddLoraLaunch {
  AddLoraArgs args;
  bool wide_x, wide_y;
};

// The rows of x and y that a block computes; -1: no row.
struct LoraRows {
  int32_t row[kLoraRows];
  int64_t slot, expert;
};

// Finds the rows of the block. Returns false if there are none.
__device__ __forceinline__ bool FindLoraRows(const AddLoraArgs& args, LoraRows& rows) {
  rows.expert = 0;
  if (args.slots != nullptr) {
    SLUICE_UNROLL
    for (int m = 0; m < kLoraRows; ++m) rows.row[m] = -1;
    rows.row[0] = static_cast<int32_t>(blockIdx.x);
    const int32_t pair = args.order[blockIdx.x];
    rows.slot = args.slots[pair / args.top_k];
    rows.expert = args.chosen[pair];
    return rows.slot >= 0;
  }
  const device::LoraTile tile = args.tiles[blockIdx.x];
  rows.slot = tile.slot;
  bool any = false;
  SLUICE_UNROLL
  for (int m = 0; m < kLoraRows; ++m) {
    const int64_t row = m < tile.count ? args.rows[tile.first + m] - args.first_row : -1;
    const bool is_here = row >= 0 && row < args.num_rows;
    rows.row[m] = is_here ? static_cast<int32_t>(row) : -1;
    any = any || is_here;
  }
  return any;
}

__device__ __forceinline__ LoraFactor LoraFactorOf(const AddLoraArgs& args,
                                                   const LoraModulePlace& module,
                                                   const LoraRows& rows) {
  return module.factor[rows.slot * args.slot_factors + rows.expert * args.expert_factors];
}

// Returns the factors of the rows' slot and expert. `first`: the address for slot 0 and expert 0.
__device__ __forceinline__ const uint16_t* LoraPlaceOf(const AddLoraArgs& args,
                                                       const uint16_t* first,
                                                       const LoraRows& rows) {
  return first + (rows.slot * args.slot_bytes + rows.expert * args.expert_bytes) / 2;
}

__device__ __forceinline__ float* LoraScratchOf(const AddLoraArgs& args, int32_t row, int module) {
  return args.h + (int64_t{row} * args.num_modules + module) * args.max_rank;
}

// Loads numbers [col, col + count) of a row of x; the rest of `values` is zero.
__device__ __forceinline__ void LoadLoraInputs(const AddLoraArgs& args, int32_t row, int64_t col,
                                               int count, bool wide, float (&values)[kVector]) {
  const int64_t index = row * args.cols + col;
  if (args.x_type != ElementType::kF8E4M3)
    return LoadVector(args.x, args.x_type, index, count, wide, values);
  const uint8_t* const codes = static_cast<const uint8_t*>(args.x) + index;
  if (wide && count == kVector) {
    const uint2 bits = *reinterpret_cast<const uint2*>(codes);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const uint32_t four = i < 4 ? bits.x : bits.y;
      values[i] = E4m3ToFloat(static_cast<uint8_t>(four >> (i % 4 * 8)));
    }
    return;
  }
  SLUICE_UNROLL
  for (int i = 0; i < kVector; ++i) values[i] = i < count ? E4m3ToFloat(codes[i]) : 0.0f;
}

// A block computes kLoraRows rows by kLoraRanks rows of A. Thread t sums the products of vectors t,
// t + threads, ... in order; then the lanes' sums are added, then the warps'.
__global__ void __launch_bounds__(kLoraShrinkThreads, 2) LoraShrinkKernel(AddLoraLaunch launch) {
  const AddLoraArgs& args = launch.args;
  const int rank_tiles = (args.max_rank + kLoraRanks - 1) / kLoraRanks;
  const int number = static_cast<int>(blockIdx.y) / rank_tiles;
  const int first_rank = static_cast<int>(blockIdx.y) % rank_tiles * kLoraRanks;
  LoraRows rows;
  if (!FindLoraRows(args, rows)) return;
  const LoraModulePlace& module = args.modules[number];
  const int rank = LoraFactorOf(args, module, rows).rank;
  if (first_rank >= rank) return;
  const uint16_t* const a = LoraPlaceOf(args, module.a, rows) + first_rank * args.cols;
  float sums[kLoraRanks][kLoraRows] = {};
  const int64_t step = int64_t{blockDim.x} * kVector;
  for (int64_t col = int64_t{threadIdx.x} * kVector; col < args.cols; col += step) {
    const int count = VectorCount(col, args.cols);
    float x[kLoraRows][kVector];
    SLUICE_UNROLL
    for (int m = 0; m < kLoraRows; ++m) {
      // A missing row counts as a row of zeros.
      LoadLoraInputs(args, rows.row[m] < 0 ? 0 : rows.row[m], col, rows.row[m] < 0 ? 0 : count,
                     launch.wide_x, x[m]);
    }
    SLUICE_UNROLL
    for (int j = 0; j < kLoraRanks; ++j) {
      if (first_rank + j >= rank) continue;
      float weight[kVector];
      LoadVector(a, ElementType::kBF16, j * args.cols + col, count, launch.wide_x, weight);
      SLUICE_UNROLL
      for (int m = 0; m < kLoraRows; ++m) {
        SLUICE_UNROLL
        for (int i = 0; i < kVector; ++i) sums[j][m] += x[m][i] * weight[i];
      }
    }
  }
  float* const shared = reinterpret_cast<float*>(SharedMemory());  // [warps][kLoraRanks][kLoraRows]
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  SLUICE_UNROLL
  for (int j = 0; j < kLoraRanks; ++j) {
    SLUICE_UNROLL
    for (int m = 0; m < kLoraRows; ++m) {
      const float sum = WarpSum(sums[j][m]);
      if (lane == 0) shared[(warp * kLoraRanks + j) * kLoraRows + m] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x >= kLoraRanks * kLoraRows) return;
  const int j = static_cast<int>(threadIdx.x) / kLoraRows, m = threadIdx.x % kLoraRows;
  int32_t row = -1;
  SLUICE_UNROLL
  for (int i = 0; i < kLoraRows; ++i) row = i == m ? rows.row[i] : row;
  if (row < 0 || first_rank + j >= rank) return;
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w)
    sum += shared[(w * kLoraRanks + j) * kLoraRows + m];
  if (args.x_scales != nullptr) sum *= args.x_scales[row];
  LoraScratchOf(args, row, number)[first_rank + j] = sum;
}

// For an embedding: copies each row's column of A, which is a row of the table.
__global__ void __launch_bounds__(kLoraLookupThreads) LoraLookupKernel(AddLoraLaunch launch) {
  const AddLoraArgs& args = launch.args;
  LoraRows rows;
  if (!FindLoraRows(args, rows)) return;
  const LoraModulePlace& module = args.modules[0];
  const int rank = LoraFactorOf(args, module, rows).rank;
  const uint16_t* const table = LoraPlaceOf(args, module.a, rows);
  SLUICE_UNROLL
  for (int m = 0; m < kLoraRows; ++m) {
    const int32_t row = rows.row[m];
    if (row < 0) continue;
    // -1: no token could be drawn; the row's result is not used.
    const int64_t token = args.tokens[row] < 0 ? 0 : args.tokens[row];
    for (int j = static_cast<int>(threadIdx.x); j < rank; j += kLoraLookupThreads)
      LoraScratchOf(args, row, 0)[j] = Bf16ToFloat(table[token * rank + j]);
  }
}

// A block computes kLoraRows rows. Each thread computes a vector of columns; it sums over the ranks
// in order.
__global__ void __launch_bounds__(kLoraExpandThreads) LoraExpandKernel(AddLoraLaunch launch) {
  const AddLoraArgs& args = launch.args;
  constexpr int64_t kColumns = int64_t{kLoraExpandThreads} * kVector;
  int number = 0;
  int64_t tile = blockIdx.y;
  for (; number + 1 < args.num_modules; ++number) {
    const int64_t tiles = (args.modules[number].rows + kColumns - 1) / kColumns;
    if (tile < tiles) break;
    tile -= tiles;
  }
  LoraRows rows;
  if (!FindLoraRows(args, rows)) return;
  const LoraModulePlace& module = args.modules[number];
  const LoraFactor factor = LoraFactorOf(args, module, rows);
  if (factor.rank == 0) return;
  float* const shared = reinterpret_cast<float*>(SharedMemory());  // [rank][kLoraRows]
  SLUICE_UNROLL
  for (int m = 0; m < kLoraRows; ++m) {
    const int32_t row = rows.row[m];
    const float* const h = LoraScratchOf(args, row < 0 ? 0 : row, number);
    for (int j = static_cast<int>(threadIdx.x); j < factor.rank; j += kLoraExpandThreads)
      shared[j * kLoraRows + m] = row < 0 ? 0.0f : h[j];
  }
  __syncthreads();
  const int64_t col = tile * kColumns + int64_t{threadIdx.x} * kVector;
  const int count = VectorCount(col, module.rows);
  if (count == 0) return;
  const uint16_t* const b = LoraPlaceOf(args, module.b, rows);
  float sums[kLoraRows][kVector] = {};
  for (int j = 0; j < factor.rank; ++j) {
    float weight[kVector];
    LoadVector(b, ElementType::kBF16, j * module.rows + col, count, launch.wide_y, weight);
    SLUICE_UNROLL
    for (int m = 0; m < kLoraRows; ++m) {
      const float h = shared[j * kLoraRows + m];
      SLUICE_UNROLL
      for (int i = 0; i < kVector; ++i) sums[m][i] += h * weight[i];
    }
  }
  const float scale = factor.scale * args.scale;
  SLUICE_UNROLL
  for (int m = 0; m < kLoraRows; ++m) {
    if (rows.row[m] < 0) continue;
    const int64_t index = rows.row[m] * args.y_stride + module.first_col + col;
    float values[kVector];
    LoadVector(args.y, args.y_type, index, count, launch.wide_y, values);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) values[i] += scale * sums[m][i];
    StoreVector(args.y, args.y_type, index, count, launch.wide_y, values, 1);
  }
}

}  // namespace

void LaunchAddLora(const StreamHandle& stream, const AddLoraArgs& args) {
  AddLoraLaunch launch{args, IsWide(args.x, args.cols), IsWide(args.y, args.y_stride)};
  constexpr int64_t kColumns = int64_t{kLoraExpandThreads} * kVector;
  int64_t tiles = 0;
  for (int i = 0; i < args.num_modules; ++i) {
    const LoraModulePlace& module = args.modules[i];
    launch.wide_x = launch.wide_x && IsWide(module.a, args.cols);
    launch.wide_y =
        launch.wide_y && IsWide(module.b, module.rows) && module.first_col % kVector == 0;
    tiles += (module.rows + kColumns - 1) / kColumns;
  }
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.num_tiles);
  if (args.tokens != nullptr) {
    shape.threads = kLoraLookupThreads;
    Launch<LoraLookupKernel>(stream, "lora_lookup", shape, launch);
  } else {
    shape.grid_y =
        static_cast<unsigned>(args.num_modules * ((args.max_rank + kLoraRanks - 1) / kLoraRanks));
    shape.threads = RowThreads(args.cols, kLoraShrinkThreads);
    shape.shared_bytes = kLoraShrinkWarps * kLoraRanks * kLoraRows * sizeof(float);
    Launch<LoraShrinkKernel>(stream, "lora_shrink", shape, launch);
  }
  shape.grid_y = static_cast<unsigned>(tiles);
  shape.threads = kLoraExpandThreads;
  shape.shared_bytes = static_cast<unsigned>(args.max_rank) * kLoraRows * sizeof(float);
  Launch<LoraExpandKernel>(stream, "lora_expand", shape, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
