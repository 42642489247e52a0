#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void ConvertRowsKernel(RowsLaunch<device::ConvertRowsArgs> launch) {
  BeginOverlapping();
  const device::ConvertRowsArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  if (WritePadding(args.out, row, args.rows, args.cols)) return;
  WriteRow(args.out, row, args.cols, launch.wide,
           [&](int64_t col, int count, float(&values)[kVector]) {
             LoadVector(args.x, args.x_type, row * args.cols + col, count, launch.wide, values);
           });
}

}  // namespace

void LaunchConvertRows(const StreamHandle& stream, const device::ConvertRowsArgs& args) {
  const bool wide = IsWide(args.x, args.cols) && IsWide(args.out, args.cols);
  Launch<ConvertRowsKernel>(
      stream, "convert_rows",
      Overlapping(RowsShape(LaunchedRows(args.out, args.rows), args.cols, IsPerToken(args.out))),
      RowsLaunch<device::ConvertRowsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
