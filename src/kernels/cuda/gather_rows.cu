#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void GatherRowsKernel(RowsLaunch<device::GatherRowsArgs> launch) {
  const device::GatherRowsArgs& args = launch.args;
  const int64_t place = blockIdx.x;
  const int32_t pair = args.order[place];
  const int64_t from = pair / args.top_k * args.cols;
  const float weight = args.weights == nullptr ? 1.0f : args.weights[pair];
  WriteRow(args.out, place, args.cols, launch.wide,
           [&](int64_t col, int count, float(&values)[kVector]) {
             LoadVector(args.x, ElementType::kF32, from + col, count, launch.wide, values);
             for (float& value : values) value *= weight;
           });
}

}  // namespace

void LaunchGatherRows(const StreamHandle& stream, const device::GatherRowsArgs& args) {
  const bool wide = IsWide(args.x, args.cols) && IsWide(args.out, args.cols);
  Launch<GatherRowsKernel>(stream, "gather_rows",
                           RowsShape(args.pairs, args.cols, IsPerToken(args.out)),
                           RowsLaunch<device::GatherRowsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
