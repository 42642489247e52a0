// Packs rows that were rounded as RowScale::kNvF4, if the kernel that wrote them did not pack them
// (RowsOut::codes).
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/nvf4_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMostThreads = 256;

// There is one thread per group of a row, including the padding groups and rows of the last tiles
// of scales.
__global__ void __launch_bounds__(kMostThreads) PackNvF4Kernel(device::PackNvF4Args args) {
  BeginOverlapping();
  const int64_t row = blockIdx.x, groups = args.cols / device::kNvF4Group;
  const int64_t group = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const int64_t tile_groups = device::kNvF4TileGroups;
  if (group >= (groups + tile_groups - 1) / tile_groups * tile_groups) return;
  if (row >= args.rows || group >= groups) {
    args.scales[device::NvF4ScaleRow(row, groups) + device::NvF4ScaleGroup(group)] = 0;
    return;
  }
  const int64_t col = group * device::kNvF4Group;
  float values[2][kVector];
  for (int half = 0; half < 2; ++half)
    LoadVector(args.x, ElementType::kBF16, row * args.cols + col + half * kVector, kVector, true,
               values[half]);
  PackNvF4Group(args.codes, args.scales, row, args.cols, col, values);
}

}  // namespace

void LaunchPackNvF4(const StreamHandle& stream, const device::PackNvF4Args& args) {
  const int64_t tile_rows = device::kNvF4TileRows;
  const int64_t groups = (args.cols / device::kNvF4Group + 31) / 32 * 32;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.rows + tile_rows - 1) / tile_rows * tile_rows);
  shape.threads = groups < kMostThreads ? static_cast<unsigned>(groups) : kMostThreads;
  shape.grid_y = static_cast<unsigned>((groups + shape.threads - 1) / shape.threads);
  Launch<PackNvF4Kernel>(stream, "pack_nvf4", Overlapping(shape), args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
