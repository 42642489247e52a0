// Applies scales and bias to a product that a library computed without them. A thread processes
// eight consecutive columns.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/linear_result.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

using device::ScaleResultsArgs;

namespace {

constexpr int kScaleResultsThreads = 256;
constexpr int64_t kMostRowsOfGrid = 65535;

}  // namespace

__global__ void __launch_bounds__(kScaleResultsThreads)
    ScaleResultsKernel(RowsLaunch<ScaleResultsArgs> launch) {
  BeginOverlapping();
  const ScaleResultsArgs& args = launch.args;
  const int64_t n = (int64_t{blockIdx.x} * kScaleResultsThreads + threadIdx.x) * kVector;
  const int count = VectorCount(n, args.n);
  if (count == 0) return;
  float scales[kVector], addends[kVector];
  SLUICE_UNROLL
  for (int i = 0; i < kVector; ++i) {
    scales[i] = 1.0f;
    addends[i] = linear::kNoBias;
  }
  if (args.row_scales != nullptr)
    LoadVector(args.row_scales, ElementType::kF32, n, count, launch.wide, scales);
  if (args.bias != nullptr)
    LoadVector(args.bias, ElementType::kF32, n, count, launch.wide, addends);
  for (int64_t m = blockIdx.y; m < args.m; m += gridDim.y) {
    const float x_scale = args.x_scales != nullptr ? args.x_scales[m] : 1.0f;
    float values[kVector];
    LoadVector(args.y, args.y_type, m * args.y_stride + n, count, launch.wide, values);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i)
      values[i] = linear::ScaledResult(values[i], scales[i], x_scale, addends[i]);
    StoreVector(args.y, args.y_type, m * args.y_stride + n, count, launch.wide, values, 1.0f);
  }
}

void LaunchScaleResults(const StreamHandle& stream, const ScaleResultsArgs& args) {
  constexpr int64_t kBlockColumns = int64_t{kScaleResultsThreads} * kVector;
  const int64_t columns = (args.n + kBlockColumns - 1) / kBlockColumns;
  const bool wide =
      IsWide(args.y, args.y_stride) && IsWide(args.row_scales, args.n) && IsWide(args.bias, args.n);
  Launch<ScaleResultsKernel>(
      stream, "scale_results",
      {.grid_x = static_cast<unsigned>(columns),
       .grid_y = static_cast<unsigned>(args.m < kMostRowsOfGrid ? args.m : kMostRowsOfGrid),
       .threads = kScaleResultsThreads,
       .overlaps = true},
      RowsLaunch<ScaleResultsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
