// Reorders columns of rows, to bring inputs into the input order of a matrix.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int64_t kColumnsOfThread = 8;
constexpr unsigned kTakeColumnsThreads = 128;

__global__ void TakeColumnsKernel(device::TakeColumnsArgs args) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kColumnsOfThread;
  if (first >= args.cols) return;
  const int64_t row = int64_t{blockIdx.x} * args.cols;
  const uint16_t* in = args.in + row;
  const int32_t* from = args.indices + first;
  uint32_t pairs[4];
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) {
    pairs[i] = static_cast<uint32_t>(in[from[2 * i]]) | static_cast<uint32_t>(in[from[2 * i + 1]])
                                                            << 16;
  }
  *reinterpret_cast<uint4*>(args.out + row + first) =
      make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

}  // namespace

void LaunchTakeColumns(const StreamHandle& stream, const device::TakeColumnsArgs& args) {
  const int64_t pieces = args.cols / kColumnsOfThread;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((pieces + kTakeColumnsThreads - 1) / kTakeColumnsThreads);
  shape.threads = kTakeColumnsThreads;
  Launch<TakeColumnsKernel>(stream, "take_columns", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
