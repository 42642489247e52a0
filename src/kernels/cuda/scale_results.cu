// The scales and the bias of a product that a library computed without them.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/linear_result.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

using device::ScaleResultsArgs;

namespace {

constexpr int kScaleResultsThreads = 256;
constexpr int64_t kMostRowsOfGrid = 65535;

}  // namespace

__global__ void __launch_bounds__(kScaleResultsThreads) ScaleResultsKernel(ScaleResultsArgs args) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kScaleResultsThreads + threadIdx.x;
  if (n >= args.n) return;
  const float row_scale = args.row_scales != nullptr ? args.row_scales[n] : 1.0f;
  for (int64_t m = blockIdx.y; m < args.m; m += gridDim.y) {
    const float x_scale = args.x_scales != nullptr ? args.x_scales[m] : 1.0f;
    const int64_t at = m * args.y_stride + n;
    if (args.y_type == ElementType::kF32) {
      float& y = static_cast<float*>(args.y)[at];
      y = linear::ScaledResult(y, row_scale, x_scale, args.bias, n);
    } else {
      uint16_t& y = static_cast<uint16_t*>(args.y)[at];
      y = FloatToBf16(linear::ScaledResult(Bf16ToFloat(y), row_scale, x_scale, args.bias, n));
    }
  }
}

void LaunchScaleResults(const StreamHandle& stream, const ScaleResultsArgs& args) {
  const int64_t columns = (args.n + kScaleResultsThreads - 1) / kScaleResultsThreads;
  Launch<ScaleResultsKernel>(
      stream, "scale_results",
      {.grid_x = static_cast<unsigned>(columns),
       .grid_y = static_cast<unsigned>(args.m < kMostRowsOfGrid ? args.m : kMostRowsOfGrid),
       .threads = kScaleResultsThreads},
      args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
