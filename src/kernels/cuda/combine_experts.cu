#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void CombineExpertsKernel(RowsLaunch<device::CombineExpertsArgs> launch) {
  const device::CombineExpertsArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const int count = VectorCount(col, args.cols);
  if (count == 0) return;
  const int64_t to = row * args.cols + col;
  float sum[kVector] = {};
  if (args.add) LoadVector(args.sum, ElementType::kF32, to, count, launch.wide, sum);
  if (args.sum_gates != nullptr) {
    const float factor = Sigmoid(args.sum_gates[row]);
    for (float& value : sum) value *= factor;
  }
  for (int slot = 0; slot < args.top_k; ++slot) {
    const int64_t pair = row * args.top_k + slot;
    const float weight = args.weights == nullptr ? 1.0f : args.weights[pair];
    float values[kVector];
    LoadVector(args.y, args.y_type, args.place[pair] * args.cols + col, count, launch.wide, values);
    if (args.bias != nullptr) {
      float bias[kVector];
      LoadVector(args.bias, ElementType::kF32, args.chosen[pair] * args.cols + col, count,
                 launch.wide, bias);
      for (int i = 0; i < kVector; ++i) values[i] += bias[i];
    }
    for (int i = 0; i < kVector; ++i) sum[i] += weight * values[i];
  }
  StoreVector(args.sum, ElementType::kF32, to, count, launch.wide, sum, 1);
}

}  // namespace

void LaunchCombineExperts(const StreamHandle& stream, const device::CombineExpertsArgs& args) {
  const bool wide =
      IsWide(args.y, args.cols) && IsWide(args.sum, args.cols) && IsWide(args.bias, args.cols);
  Launch<CombineExpertsKernel>(stream, "combine_experts", RowsShape(args.rows, args.cols, false),
                               RowsLaunch<device::CombineExpertsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
