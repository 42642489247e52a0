// Adds up the ranges of a product whose k was split, in order.
#include "kernels/cuda/linear_launch.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE::linear {

struct CombineRangesArgs {
  LinearTileArgs tiles;
  float factor;
};

namespace {

constexpr int kThreads = 256;

// The expert of row m: the last that begins at or before it.
__device__ __forceinline__ int64_t ExpertOf(const device::GroupedLinearArgs& product, int64_t m) {
  int64_t low = 0, high = product.num_experts;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (product.row_begin[middle] <= m)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace

__global__ void __launch_bounds__(kThreads) CombineRangesKernel(CombineRangesArgs args) {
  const device::GroupedLinearArgs& product = args.tiles.product;
  const device::LinearArgs& linear = product.linear;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, m = blockIdx.y;
  if (n >= linear.w.n) return;
  int64_t expert = 0;
  if (product.num_experts > 0) {
    // Rows beyond the last expert's have no sums.
    if (m >= product.row_begin[product.num_experts] || m < product.row_begin[0]) return;
    expert = ExpertOf(product, m);
  }
  const float* partial = args.tiles.partials + m * linear.w.n + n;
  float total = 0;
  for (int64_t range = 0; range < args.tiles.split.ranges; ++range)
    total += partial[range * linear.m * linear.w.n];
  ResultScales result;
  result.Begin(linear, args.factor, expert * product.row_scales_stride);
  result.Write(linear, m, n, total);
}

void LaunchCombineRanges(const StreamHandle& stream, const LinearTileArgs& args, float factor) {
  const device::LinearArgs& linear = args.product.linear;
  Launch<CombineRangesKernel>(
      stream, "linear_combine",
      {.grid_x = static_cast<unsigned>((linear.w.n + kThreads - 1) / kThreads),
       .grid_y = static_cast<unsigned>(linear.m),
       .threads = kThreads},
      CombineRangesArgs{args, factor});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE::linear
