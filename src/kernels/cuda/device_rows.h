// Functions that kernels over rows share: wide loads and stores, sums and maxima of a block, and
// rounding of a row to E4M3, NVFP4 or MXFP4 as RowsOut requests.
//
// Each thread processes vectors of eight consecutive elements. `wide`: whether every vector of the
// launch is whole and aligned (IsWide of each array). If so, vectors are moved in 16-byte pieces;
// otherwise elements are moved one by one. The arithmetic and its order are the same.
#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/mxf4_rows.h"
#include "kernels/cuda/nvf4_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

constexpr int kVector = 8;
static_assert(kVector == kHalfGroup && kVector * kMxF4Pieces == device::kMxF4Group);

// Returns whether an array of rows of `cols` elements that starts at `data` can be accessed in
// 16-byte pieces; true for null.
inline bool IsWide(const void* data, int64_t cols) {
  return cols % kVector == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}
inline bool IsWide(const device::RowsOut& out, int64_t cols) {
  return IsWide(out.data, cols);
}

__host__ __device__ __forceinline__ bool IsPerToken(const device::RowsOut& out) {
  return out.type == ElementType::kF8E4M3 && out.row_scale == device::RowScale::kPerToken;
}

__host__ __device__ __forceinline__ bool IsNvF4(const device::RowsOut& out) {
  return out.type == ElementType::kBF16 && out.row_scale == device::RowScale::kNvF4;
}
__host__ __device__ __forceinline__ bool IsMxF4(const device::RowsOut& out) {
  return out.type == ElementType::kBF16 && out.row_scale == device::RowScale::kMxF4;
}
__host__ __device__ __forceinline__ bool HasRowScales(const device::RowsOut& out) {
  return out.type == ElementType::kF8E4M3 || IsNvF4(out);
}

// Returns whether NVFP4 rows are also packed.
__host__ __device__ __forceinline__ bool IsPacked(const device::RowsOut& out) {
  return IsNvF4(out) && out.codes != nullptr;
}
// Returns the number of rows of blocks to launch. If rows are packed, it is rounded up to whole
// tiles of scales.
inline int64_t LaunchedRows(const device::RowsOut& out, int64_t rows) {
  constexpr int64_t kTile = device::kNvF4TileRows;
  return IsPacked(out) ? (rows + kTile - 1) / kTile * kTile : rows;
}

// Arguments of a kernel over rows.
template <typename Args>
struct RowsLaunch {
  Args args;
  bool wide;
};

// Returns the number of threads for a row of `cols` elements, at most `limit`. It depends only on
// `cols`, so a row's sums do not depend on the batch.
inline unsigned RowThreads(int64_t cols, unsigned limit) {
  const int64_t vectors = (cols + kVector - 1) / kVector;
  return vectors >= limit ? limit : static_cast<unsigned>((vectors + 31) / 32 * 32);
}

// Returns a launch with one block per row, or several if a row needs no sums or maxima.
inline LaunchShape RowsShape(int64_t rows, int64_t cols, bool one_block_a_row) {
  LaunchShape shape;
  shape.grid_x = 0;
  if (cols <= 0) return shape;
  shape.grid_x = static_cast<unsigned>(rows);
  shape.threads = RowThreads(cols, one_block_a_row ? 512 : 256);
  const int64_t per_block = int64_t{shape.threads} * kVector;
  shape.grid_y = one_block_a_row ? 1 : static_cast<unsigned>((cols + per_block - 1) / per_block);
  shape.shared_bytes = 32 * sizeof(uint32_t);
  return shape;
}

// Returns the number of elements of a row in the vector that begins at `col`: at most 8, or 0.
__device__ __forceinline__ int VectorCount(int64_t col, int64_t cols) {
  return col + kVector <= cols ? kVector : col < cols ? static_cast<int>(cols - col) : 0;
}

// Loads elements [index, index + count) of an array of kF32 or kBF16; the rest of `values` is zero.
__device__ __forceinline__ void LoadVector(const void* x, ElementType type, int64_t index,
                                           int count, bool wide, float (&values)[kVector]) {
  if (wide && count == kVector) {
    if (type == ElementType::kF32) {
      const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(x) + index);
      const float4 low = from[0], high = from[1];
      values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
      values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
      return;
    }
    const uint4 bits = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(x) + index);
    const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const uint32_t pair = pairs[i / 2];
      values[i] = FloatFromBits(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
    }
    return;
  }
  SLUICE_UNROLL
  for (int i = 0; i < kVector; ++i) {
    values[i] = 0;
    if (i >= count) continue;
    values[i] = type == ElementType::kF32 ? static_cast<const float*>(x)[index + i]
                                          : Bf16ToFloat(static_cast<const uint16_t*>(x)[index + i]);
  }
}

// Writes the first `count` values to elements [index, index + count) of an array; kF8E4M3: as
// E4M3(value / scale).
__device__ __forceinline__ void StoreVector(void* out, ElementType type, int64_t index, int count,
                                            bool wide, const float (&values)[kVector],
                                            float scale) {
  if (type == ElementType::kF32) {
    float* to = static_cast<float*>(out) + index;
    if (wide && count == kVector) {
      reinterpret_cast<float4*>(to)[0] = make_float4(values[0], values[1], values[2], values[3]);
      reinterpret_cast<float4*>(to)[1] = make_float4(values[4], values[5], values[6], values[7]);
      return;
    }
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      if (i < count) to[i] = values[i];
    }
  } else if (type == ElementType::kBF16) {
    uint16_t* to = static_cast<uint16_t*>(out) + index;
    if (wide && count == kVector) {
      *reinterpret_cast<uint4*>(to) =
          make_uint4(PackBf16(values[0], values[1]), PackBf16(values[2], values[3]),
                     PackBf16(values[4], values[5]), PackBf16(values[6], values[7]));
      return;
    }
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      if (i < count) to[i] = FloatToBf16(values[i]);
    }
  } else {
    uint8_t* to = static_cast<uint8_t*>(out) + index;
    uint32_t codes[2] = {0, 0};
    SLUICE_UNROLL
    for (int i = 0; i < kVector; i += 2) {
      const uint32_t pair = PackE4m3(values[i] / scale, values[i + 1] / scale);
      codes[i / 4] |= pair << (i % 4 * 8);
    }
    if (wide && count == kVector) {
      *reinterpret_cast<uint2*>(to) = make_uint2(codes[0], codes[1]);
      return;
    }
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      if (i < count) to[i] = static_cast<uint8_t>(codes[i / 4] >> (i % 4 * 8));
    }
  }
}

// Called by all threads of a block. Every thread gets the sum of all threads' values; the order of
// summation is fixed. `shared`: 32 numbers that must not be used otherwise until the next barrier.
__device__ __forceinline__ float BlockSum(float value, float* shared) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = WarpSum(value);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return WarpSum(lane < blockDim.x / 32 ? shared[lane] : 0.0f);
}

// Called by all threads of a block. T is an unsigned type. Every thread gets the maximum of all
// threads' values.
template <typename T>
__device__ __forceinline__ T BlockMax(T value, T* shared) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int mask = 16; mask > 0; mask >>= 1) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, value, mask);
    value = other > value ? other : value;
  }
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? shared[lane] : T{0};
  for (int mask = 16; mask > 0; mask >>= 1) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// Returns the RowScale::kPerToken scale of a row whose largest magnitude has these bits.
__device__ __forceinline__ float PerTokenScale(uint32_t largest_bits) {
  constexpr float kE4m3Max = 448.0f;
  const float scale = FloatFromBits(largest_bits) / kE4m3Max;
  return scale == 0 ? 1.0f : scale;
}

// For a launch of LaunchedRows(out, rows): called by all threads of the blocks of row `row`. Writes
// zeros to the scales of packed rows that belong to no group. Returns true if the row is after the
// last one; the caller then has nothing else to do.
__device__ __forceinline__ bool WritePadding(const device::RowsOut& out, int64_t row, int64_t rows,
                                             int64_t cols) {
  if (!IsPacked(out)) return false;
  const int64_t groups = cols / device::kNvF4Group, tile = device::kNvF4TileGroups;
  uint8_t* const scales = out.group_scales + device::NvF4ScaleRow(row, groups);
  const int64_t first = (row < rows ? groups : 0) + int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  for (int64_t group = first; group < (groups + tile - 1) / tile * tile;
       group += int64_t{gridDim.y} * blockDim.x)
    scales[device::NvF4ScaleGroup(group)] = 0;
  return row >= rows;
}

// Called by all threads of a block of a RowsShape launch. Writes row `row` of `out`. load(col,
// count, values) must set `values` to elements [col, col + count) of the row, followed by zeros,
// and to the same values at every call.
template <typename Load>
__device__ __forceinline__ void WriteRow(const device::RowsOut& out, int64_t row, int64_t cols,
                                         bool wide, const Load& load) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const int64_t step = int64_t{gridDim.y} * blockDim.x * kVector;
  float scale = out.static_scale;
  if (IsNvF4(out)) {
    if (blockIdx.y == 0 && threadIdx.x == 0) out.scales[row] = scale;
    // For whole groups, a thread reads all elements of a group before it writes them, so `out` may
    // be the input.
    for (int64_t col = 2 * first; col < cols; col += 2 * step) {
      float values[2][kVector];
      load(col, kVector, values[0]);
      load(col + kVector, kVector, values[1]);
      const uint32_t low = LargestBits(values[0]), high = LargestBits(values[1]);
      for (int half = 0; half < 2; ++half) {
        RoundToNvF4(low > high ? low : high, scale, values[half]);
        StoreVector(out.data, out.type, row * cols + col + half * kVector, kVector, wide,
                    values[half], scale);
      }
      if (out.codes != nullptr) PackNvF4Group(out.codes, out.group_scales, row, cols, col, values);
    }
    return;
  }
  if (IsMxF4(out)) {
    // Four adjacent threads have a group. All threads of a warp exchange maxima, also those beyond
    // the row. A thread reads its elements before it writes them, so `out` may be the input.
    const int64_t in_warp = int64_t{threadIdx.x % 32} * kVector;
    for (int64_t begin = first - in_warp; begin < cols; begin += step) {
      const int64_t col = begin + in_warp;
      float values[kVector] = {};
      if (col < cols) load(col, kVector, values);
      RoundToMxF4(LargestOfMxF4Group(values), values);
      if (col < cols)
        StoreVector(out.data, out.type, row * cols + col, kVector, wide, values, scale);
    }
    return;
  }
  if (IsPerToken(out)) {
    uint32_t largest = 0;
    for (int64_t col = first; col < cols; col += step) {
      float values[kVector];
      load(col, VectorCount(col, cols), values);
      const uint32_t bits = LargestBits(values);
      largest = bits > largest ? bits : largest;
    }
    scale = PerTokenScale(BlockMax(largest, reinterpret_cast<uint32_t*>(SharedMemory())));
  }
  if (out.type == ElementType::kF8E4M3 && blockIdx.y == 0 && threadIdx.x == 0)
    out.scales[row] = scale;
  for (int64_t col = first; col < cols; col += step) {
    float values[kVector];
    const int count = VectorCount(col, cols);
    load(col, count, values);
    StoreVector(out.data, out.type, row * cols + col, count, wide, values, scale);
  }
}

__device__ __forceinline__ float Sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
