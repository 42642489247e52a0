#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void EmbeddingKernel(RowsLaunch<device::EmbeddingArgs> launch) {
  const device::EmbeddingArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const int count = VectorCount(col, args.cols);
  if (count == 0) return;
  float values[kVector];
  // -1: no token could be drawn; the row's result is not used.
  const int64_t token = args.tokens[row] < 0 ? 0 : args.tokens[row];
  LoadVector(args.table, ElementType::kBF16, token * args.cols + col, count, launch.wide, values);
  for (int i = 0; i < kVector; ++i) values[i] *= args.scale;
  StoreVector(args.out, ElementType::kF32, row * args.cols + col, count, launch.wide, values, 1);
}

}  // namespace

void LaunchEmbedding(const StreamHandle& stream, const device::EmbeddingArgs& args) {
  const bool wide = IsWide(args.table, args.cols) && IsWide(args.out, args.cols);
  Launch<EmbeddingKernel>(stream, "embedding", RowsShape(args.rows, args.cols, false),
                          RowsLaunch<device::EmbeddingArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
