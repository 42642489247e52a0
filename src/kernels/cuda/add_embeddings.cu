#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

__global__ void AddEmbeddingsKernel(RowsLaunch<device::AddEmbeddingsArgs> launch) {
  const device::AddEmbeddingsArgs& args = launch.args;
  const int64_t row = blockIdx.x;
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kVector;
  const int count = VectorCount(col, args.cols);
  if (count == 0) return;
  float added[kVector] = {};
  if (args.position_table != nullptr) {
    const int64_t position = args.positions[row] + args.first_position;
    LoadVector(args.position_table, ElementType::kF32, position * args.cols + col, count,
               launch.wide, added);
  }
  float values[kVector];
  if (args.type_table != nullptr) {
    const int64_t type = args.types == nullptr ? 0 : args.types[row];
    LoadVector(args.type_table, ElementType::kF32, type * args.cols + col, count, launch.wide,
               values);
    for (int i = 0; i < kVector; ++i) added[i] += values[i];
  }
  LoadVector(args.out, ElementType::kF32, row * args.cols + col, count, launch.wide, values);
  for (int i = 0; i < kVector; ++i) values[i] += added[i];
  StoreVector(args.out, ElementType::kF32, row * args.cols + col, count, launch.wide, values, 1);
}

}  // namespace

void LaunchAddEmbeddings(const StreamHandle& stream, const device::AddEmbeddingsArgs& args) {
  const bool wide = IsWide(args.out, args.cols) && IsWide(args.position_table, args.cols) &&
                    IsWide(args.type_table, args.cols);
  Launch<AddEmbeddingsKernel>(stream, "add_embeddings", RowsShape(args.rows, args.cols, false),
                              RowsLaunch<device::AddEmbeddingsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
