#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMergeThreads = 128;

// A thread computes the results of one column of the pieces.
__global__ void MergePatchesKernel(device::MergePatchesArgs args) {
  const int64_t col = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (col >= args.cols) return;
  const int64_t row = blockIdx.x;
  const float* const x = args.x + row * args.group * args.cols + col;
  if (args.by_number) {
    float* const out = args.out + (row * args.cols + col) * args.group;
    for (int64_t i = 0; i < args.group; ++i) out[i] = x[i * args.cols];
    return;
  }
  float sum = 0;
  for (int64_t i = 0; i < args.group; ++i) sum += x[i * args.cols];
  args.out[row * args.cols + col] = sum / static_cast<float>(args.group);
}

}  // namespace

void LaunchMergePatches(const StreamHandle& stream, const device::MergePatchesArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((args.cols + kMergeThreads - 1) / kMergeThreads);
  shape.threads = kMergeThreads;
  Launch<MergePatchesKernel>(stream, "merge_patches", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
