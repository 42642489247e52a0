#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kSquareHeads = 4;  // number of heads per block, one per warp

// Lane l sums the squares of vectors l, l + 32, ... in order. Then the sums of the lanes are added.
__global__ void __launch_bounds__(kSquareHeads * 32)
    HeadSquaresKernel(RowsLaunch<device::HeadSquaresArgs> launch) {
  const device::HeadSquaresArgs& args = launch.args;
  const int heads = args.num_heads + args.num_kv_heads;
  const int head = static_cast<int>(blockIdx.y * kSquareHeads + threadIdx.x / 32);
  if (head >= heads) return;
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x % 32), dim = args.head_dim;
  const int64_t begin = (row * args.row_heads + head) * dim;
  float sum = 0;
  for (int at = lane * kVector; at < dim; at += 32 * kVector) {
    float values[kVector];
    LoadVector(args.qkv, args.qkv_type, begin + at, VectorCount(at, dim), launch.wide, values);
    SLUICE_UNROLL
    for (const float value : values) sum += value * value;
  }
  sum = WarpSum(sum);
  if (lane != 0) return;
  if (head < args.num_heads)
    args.q[row * args.num_heads + head] = sum;
  else
    args.k[row * args.num_kv_heads + head - args.num_heads] = sum;
}

}  // namespace

void LaunchHeadSquares(const StreamHandle& stream, const device::HeadSquaresArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y =
      static_cast<unsigned>(args.num_heads + args.num_kv_heads + kSquareHeads - 1) / kSquareHeads;
  shape.threads = kSquareHeads * 32;
  Launch<HeadSquaresKernel>(
      stream, "head_squares", shape,
      RowsLaunch<device::HeadSquaresArgs>{args, IsWide(args.qkv, args.head_dim)});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
