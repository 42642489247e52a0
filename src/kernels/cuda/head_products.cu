// A warp multiplies a tile of 16 rows of one head by 32 rows of the head's matrix, with operands
// from global memory. The caches serve repeated reads: the warps of a block read the same rows of
// x, and blocks of the same head read the same matrix.
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/tail_rope.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int kProductRows = 16;
constexpr int kProductGroups = 4;  // groups of 8 columns per warp
constexpr int kProductWarps = 4;
constexpr int kProductThreads = kProductWarps * 32;
constexpr int kProductColumns = kProductWarps * kProductGroups * 8;

__device__ __forceinline__ float QueryFactor(const device::HeadProductsArgs& args, int64_t row) {
  if (args.temperature_floor <= 0) return 1;
  const auto position = static_cast<float>(args.positions[row]);
  return log1pf(floorf((position + static_cast<float>(args.temperature_first)) /
                       args.temperature_floor)) *
             args.temperature_scale +
         1.0f;
}

// Loads two consecutive elements of x as BF16; zeros unless `is_valid`.
__device__ __forceinline__ uint32_t LoadPair(const device::HeadProductsArgs& args, int64_t index,
                                             bool is_valid) {
  if (!is_valid) return 0;
  if (args.x_type == ElementType::kBF16)
    return *reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(args.x) + index);
  const float2 pair = *reinterpret_cast<const float2*>(static_cast<const float*>(args.x) + index);
  return PackBf16(pair.x, pair.y);
}

__global__ void __launch_bounds__(kProductThreads)
    HeadProductsKernel(device::HeadProductsArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int first_col = static_cast<int>(blockIdx.y) * kProductColumns +
                        static_cast<int>(threadIdx.x) / 32 * kProductGroups * 8;
  if (first_col >= args.n) return;
  const int64_t head = blockIdx.z, first_row = int64_t{blockIdx.x} * kProductRows;
  const uint16_t* const w = args.w + head * args.w_head;
  float sums[kProductGroups][4] = {};
  for (int step = 0; step < args.k; step += 16) {
    uint32_t a[4];
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + g + 8 * (i % 2);
      const int column = step + 2 * t + 8 * (i / 2);
      a[i] = LoadPair(args, row * args.x_stride + head * args.x_head + column,
                      row < args.rows && column < args.k);
    }
    SLUICE_UNROLL
    for (int j = 0; j < kProductGroups; ++j) {
      const int col = first_col + 8 * j + g;
      uint32_t b[2];
      SLUICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = step + 2 * t + 8 * i;
        b[i] = col < args.n && column < args.k
                   ? *reinterpret_cast<const uint32_t*>(w + int64_t{col} * args.k + column)
                   : 0;
      }
      MmaBf16(sums[j], a, b);
    }
  }
  SLUICE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int64_t row = first_row + g + 8 * r;
    if (row >= args.rows) continue;
    const float factor = QueryFactor(args, row);
    SLUICE_UNROLL
    for (int j = 0; j < kProductGroups; ++j) {
      const int col = first_col + 8 * j + 2 * t;
      if (col >= args.n) continue;
      *reinterpret_cast<uint32_t*>(args.y + row * args.y_stride + head * args.y_head + col) =
          PackBf16(sums[j][2 * r] * factor, sums[j][2 * r + 1] * factor);
    }
  }
}

// Each thread rotates one pair of numbers.
__global__ void __launch_bounds__(kProductThreads) HeadTailsKernel(device::HeadProductsArgs args) {
  const int pairs = args.rope.dim / 2;
  const int64_t task = int64_t{blockIdx.x} * kProductThreads + threadIdx.x;
  if (task >= args.rows * args.heads * pairs) return;
  const int pair = static_cast<int>(task % pairs);
  const int64_t head = task / pairs % args.heads, row = task / pairs / args.heads;
  const float* const x =
      static_cast<const float*>(args.x) + row * args.x_stride + head * args.x_head + args.k;
  const RotatedPair rotated = RotatePair(args.rope, row, x, pair);
  const float factor = QueryFactor(args, row);
  uint16_t* const y = args.y + row * args.y_stride + head * args.y_head + args.n;
  y[rotated.first] = FloatToBf16(rotated.a * factor);
  y[rotated.second] = FloatToBf16(rotated.b * factor);
}

}  // namespace

void LaunchHeadProducts(const StreamHandle& stream, const device::HeadProductsArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.rows + kProductRows - 1) / kProductRows);
  shape.grid_y = static_cast<unsigned>((args.n + kProductColumns - 1) / kProductColumns);
  shape.grid_z = static_cast<unsigned>(args.heads);
  shape.threads = kProductThreads;
  Launch<HeadProductsKernel>(stream, "head_products", shape, args);
  if (args.rope.dim == 0) return;
  LaunchShape tails;
  tails.grid_x = static_cast<unsigned>(
      (args.rows * args.heads * (args.rope.dim / 2) + kProductThreads - 1) / kProductThreads);
  tails.threads = kProductThreads;
  Launch<HeadTailsKernel>(stream, "head_tails", tails, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
