// Writes the rows of images to their places among the rows of a step.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr int64_t kPlaceRowsNumbers = 4;
constexpr unsigned kPlaceRowsThreads = 128;

__global__ void PlaceRowsKernel(device::PlaceRowsArgs args) {
  const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kPlaceRowsNumbers;
  if (first >= args.cols) return;
  const float4 value = *reinterpret_cast<const float4*>(
      args.values + args.places[blockIdx.x] * args.value_stride + first);
  auto* const out =
      reinterpret_cast<float4*>(args.x + args.rows[blockIdx.x] * args.x_stride + first);
  if (args.adds) {
    const float4 before = *out;
    *out =
        make_float4(before.x + value.x, before.y + value.y, before.z + value.z, before.w + value.w);
  } else {
    *out = value;
  }
}

}  // namespace

void LaunchPlaceRows(const StreamHandle& stream, const device::PlaceRowsArgs& given) {
  device::PlaceRowsArgs args = given;
  if (args.x_stride == 0) args.x_stride = args.cols;
  const int64_t pieces = args.cols / kPlaceRowsNumbers;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.count);
  shape.grid_y = static_cast<unsigned>((pieces + kPlaceRowsThreads - 1) / kPlaceRowsThreads);
  shape.threads = kPlaceRowsThreads;
  Launch<PlaceRowsKernel>(stream, "place_rows", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
