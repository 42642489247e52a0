// Packs rows that were rounded as RowScale::kMxF4, for products of codes.
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;

// There is one thread per group.
__global__ void __launch_bounds__(kThreads) PackMxF4Kernel(device::PackMxF4Args args) {
  BeginOverlapping();
  const int64_t group = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (group >= args.rows * (args.cols / device::kMxF4Group)) return;
  float values[kMxF4Pieces][kVector];
  uint32_t largest = 0;
  SLUICE_UNROLL
  for (int piece = 0; piece < kMxF4Pieces; ++piece) {
    LoadVector(args.x, ElementType::kBF16, group * device::kMxF4Group + piece * kVector, kVector,
               true, values[piece]);
    largest = max(largest, LargestBits(values[piece]));
  }
  const auto byte = static_cast<uint8_t>(MxF4Scale(largest));
  args.scales[group] = byte;
  const float scale = E8m0ToFloat(byte);
  reinterpret_cast<uint4*>(args.codes)[group] =
      make_uint4(MxF4Codes(values[0], scale), MxF4Codes(values[1], scale),
                 MxF4Codes(values[2], scale), MxF4Codes(values[3], scale));
}

}  // namespace

void LaunchPackMxF4(const StreamHandle& stream, const device::PackMxF4Args& args) {
  const int64_t groups = args.rows * (args.cols / device::kMxF4Group);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((groups + kThreads - 1) / kThreads);
  shape.threads = kThreads;
  Launch<PackMxF4Kernel>(stream, "pack_mxf4", Overlapping(shape), args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
