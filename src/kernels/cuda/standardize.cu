#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int64_t kStandardizeNumbers = 4;
constexpr unsigned kStandardizeThreads = 128;

__global__ void StandardizeKernel(device::StandardizeArgs args) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kStandardizeNumbers;
  if (first >= args.cols) return;
  auto* const x = reinterpret_cast<float4*>(args.x + int64_t{blockIdx.x} * args.cols + first);
  const float4 factor = *reinterpret_cast<const float4*>(args.factor + first);
  float4 value = *x;
  if (args.bias != nullptr) {
    const float4 bias = *reinterpret_cast<const float4*>(args.bias + first);
    value = make_float4(value.x - bias.x, value.y - bias.y, value.z - bias.z, value.w - bias.w);
  }
  *x = make_float4(value.x * factor.x, value.y * factor.y, value.z * factor.z, value.w * factor.w);
}

}  // namespace

void LaunchStandardize(const StreamHandle& stream, const device::StandardizeArgs& args) {
  const int64_t pieces = args.cols / kStandardizeNumbers;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((pieces + kStandardizeThreads - 1) / kStandardizeThreads);
  shape.threads = kStandardizeThreads;
  Launch<StandardizeKernel>(stream, "standardize", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
