#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void SiluMulKernel(RowsLaunch<device::SiluMulArgs> launch) {
  BeginOverlapping();
  const device::SiluMulArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  if (WritePadding(args.out, row, args.rows, args.width)) return;
  // The scale of a row depends on all its results, so it must be known before the first one is
  // written. The results are computed twice, which costs less than storing a row of any width.
  WriteRow(
      args.out, row, args.width, launch.wide, [&](int64_t col, int count, float(&values)[kVector]) {
        const bool is_apart = args.factors != nullptr;
        const int64_t gate = row * (is_apart || args.plain ? 1 : 2) * args.width + col;
        float up[kVector];
        LoadVector(args.x, args.x_type, gate, count, launch.wide, values);
        for (float& value : values) value *= args.gate_factor;
        if (args.relu2) {
          for (float& value : values)
            value = value > 0 ? value * value : value != value ? value : 0;
        }
        if (!args.relu2) {
          for (float& z : values) {
            const float exponent = args.gelu ? z * (-1.5957691216f - 0.0713548163f * (z * z))
                                   : args.quick_gelu ? -1.702f * z
                                                     : -z;
            z = z / (1.0f + expf(exponent));
          }
        }
        if (args.plain) return;
        LoadVector(is_apart ? args.factors : args.x, is_apart ? ElementType::kF32 : args.x_type,
                   is_apart ? row * args.factor_stride + col : gate + args.width, count,
                   launch.wide, up);
        for (int i = 0; i < kVector; ++i) values[i] *= up[i];
      });
}

}  // namespace

void LaunchSiluMul(const StreamHandle& stream, const device::SiluMulArgs& args) {
  const bool wide = IsWide(args.x, args.width) && IsWide(args.out, args.width) &&
                    IsWide(args.factors, args.factor_stride);
  Launch<SiluMulKernel>(
      stream, "silu_mul",
      Overlapping(RowsShape(LaunchedRows(args.out, args.rows), args.width, IsPerToken(args.out))),
      RowsLaunch<device::SiluMulArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
