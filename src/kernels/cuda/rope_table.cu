#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void RopeTableKernel(device::RopeTableArgs args) {
  const int half = args.rotary_dim / 2;
  float* out = args.cos_sin + int64_t{blockIdx.x} * args.rotary_dim;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += static_cast<int>(blockDim.x)) {
    const int64_t axis = args.has_axes ? args.axes[i] : 0;
    const auto position = static_cast<float>(args.positions[axis * args.rows + blockIdx.x]);
    const float angle = position * args.frequencies[i];
    out[i] = cosf(angle) * args.amplitude;
    out[half + i] = sinf(angle) * args.amplitude;
  }
}

}  // namespace

void LaunchRopeTable(const StreamHandle& stream, const device::RopeTableArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.threads = 64;
  Launch<RopeTableKernel>(stream, "rope_table", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
