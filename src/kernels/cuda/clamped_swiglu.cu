#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

// Returns min(value, limit); NaN stays NaN.
__device__ __forceinline__ float AtMost(float value, float limit) {
  return value > limit ? limit : value;
}
__device__ __forceinline__ float AtLeast(float value, float limit) {
  return value < limit ? limit : value;
}

__global__ void ClampedSwigluKernel(RowsLaunch<device::ClampedSwigluArgs> launch) {
  const device::ClampedSwigluArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const float* const x = args.x + row * 2 * args.width;
  const float* bias = args.bias;
  if (bias != nullptr) bias += args.chosen[args.order[row]] * 2 * args.width;
  WriteRow(args.out, row, args.width, launch.wide,
           [&](int64_t col, int count, float(&values)[kVector]) {
             SLUICE_UNROLL
             for (int half = 0; half < 2; ++half) {  // halves of the pairs
               const int64_t at = 2 * col + half * kVector;
               const int left = 2 * count - half * kVector;
               const int here = left < 0 ? 0 : left < kVector ? left : kVector;
               float pairs[kVector], biases[kVector] = {};
               LoadVector(x, ElementType::kF32, at, here, launch.wide, pairs);
               if (bias != nullptr)
                 LoadVector(bias, ElementType::kF32, at, here, launch.wide, biases);
               SLUICE_UNROLL
               for (int i = 0; i < kVector / 2; ++i) {
                 const float gate = AtMost(pairs[2 * i] + biases[2 * i], args.limit);
                 const float up =
                     AtLeast(AtMost(pairs[2 * i + 1] + biases[2 * i + 1], args.limit), -args.limit);
                 values[half * kVector / 2 + i] =
                     (up + 1.0f) * (gate / (1.0f + expf(-args.alpha * gate)));
               }
             }
           });
}

}  // namespace

void LaunchClampedSwiglu(const StreamHandle& stream, const device::ClampedSwigluArgs& args) {
  const bool wide =
      IsWide(args.x, args.width) && IsWide(args.bias, args.width) && IsWide(args.out, args.width);
  Launch<ClampedSwigluKernel>(stream, "clamped_swiglu",
                              RowsShape(args.rows, args.width, IsPerToken(args.out)),
                              RowsLaunch<device::ClampedSwigluArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
