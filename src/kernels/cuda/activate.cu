#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

// Computes GELU with the approximation of erf that the CPU uses (kernels/gelu.h). gelu(x) = max(x,
// 0) - |x| / 2 * erfc(t) for either sign of x, with t = |x| / sqrt(2) and erfc(t) = 1 - erf(t).
__device__ __forceinline__ float Gelu(float x) {
  const float size = fabsf(x);
  const float k = 1.0f / (0.3275911f * 0.70710678f * size + 1.0f);
  float p = 1.061405429f;
  p = p * k - 1.453152027f;
  p = p * k + 1.421413741f;
  p = p * k - 0.284496736f;
  p = p * k + 0.254829592f;
  const float erfc = p * k * expf(-0.5f * size * size);
  return fmaxf(x, 0.0f) - 0.5f * size * erfc;
}

__global__ void ActivateKernel(RowsLaunch<device::ActivateArgs> launch) {
  const device::ActivateArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const int count = VectorCount(col, args.width);
  if (count == 0) return;
  const int64_t from = row * (args.gated ? 2 * args.width : args.width) + col;
  float values[kVector];
  LoadVector(args.x, ElementType::kBF16, from, count, launch.wide, values);
  for (int i = 0; i < kVector; ++i)
    values[i] = args.relu ? fmaxf(values[i], 0.0f) : Gelu(values[i]);
  if (args.gated) {
    float up[kVector];
    LoadVector(args.x, ElementType::kBF16, from + args.width, count, launch.wide, up);
    for (int i = 0; i < kVector; ++i) values[i] *= up[i];
  }
  StoreVector(args.out, ElementType::kBF16, row * args.width + col, count, launch.wide, values, 1);
}

}  // namespace

void LaunchActivate(const StreamHandle& stream, const device::ActivateArgs& args) {
  const bool wide = IsWide(args.x, args.width) && IsWide(args.out, args.width);
  Launch<ActivateKernel>(stream, "activate", RowsShape(args.rows, args.width, false),
                         RowsLaunch<device::ActivateArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
