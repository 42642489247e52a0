#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kCapThreads = 256;

__global__ void __launch_bounds__(kCapThreads)
    CapLogitsKernel(RowsLaunch<device::CapLogitsArgs> launch) {
  const device::CapLogitsArgs& args = launch.args;
  const int64_t at = (int64_t{blockIdx.x} * kCapThreads + threadIdx.x) * kVector;
  const int count = VectorCount(at, args.count);
  if (count == 0) return;
  float values[kVector];
  LoadVector(args.x, ElementType::kF32, at, count, launch.wide, values);
  SLUICE_UNROLL
  for (float& value : values) {
    value *= args.scale;
    if (args.cap == 0) continue;
    // Computes tanh of the magnitude by an exponential, which may underflow to 0 but is never
    // infinite.
    const float decay = expf(-2.0f * fabsf(value) / args.cap);
    const float capped = args.cap * ((1.0f - decay) / (1.0f + decay));
    value = value < 0 ? -capped : capped;
  }
  StoreVector(args.x, ElementType::kF32, at, count, launch.wide, values, 1);
}

}  // namespace

void LaunchCapLogits(const StreamHandle& stream, const device::CapLogitsArgs& args) {
  constexpr int64_t kOfBlock = int64_t{kCapThreads} * kVector;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.count + kOfBlock - 1) / kOfBlock);
  shape.threads = kCapThreads;
  // Vectors start at the first number; the last one may be partial.
  const bool wide = IsWide(args.x, kVector);
  Launch<CapLogitsKernel>(stream, "cap_logits", shape,
                          RowsLaunch<device::CapLogitsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
