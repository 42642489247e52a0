#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int64_t kPieceBytes = 16;
constexpr unsigned kTakeThreads = 128;

__global__ void TakeRowsKernel(device::TakeRowsArgs args) {
  const int64_t pieces = args.row_bytes / kPieceBytes;
  const int64_t piece = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (piece >= pieces) return;
  const int64_t row = blockIdx.x;
  static_cast<uint4*>(args.out)[row * pieces + piece] = static_cast<const uint4*>(
      args.in)[args.indices[row] * (args.in_stride / kPieceBytes) + piece];
}

}  // namespace

void LaunchTakeRows(const StreamHandle& stream, const device::TakeRowsArgs& given) {
  device::TakeRowsArgs args = given;
  if (args.in_stride == 0) args.in_stride = args.row_bytes;
  const int64_t pieces = args.row_bytes / kPieceBytes;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((pieces + kTakeThreads - 1) / kTakeThreads);
  shape.threads = kTakeThreads;
  Launch<TakeRowsKernel>(stream, "take_rows", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
