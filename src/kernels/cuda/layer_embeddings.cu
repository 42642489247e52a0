// Per-layer embeddings of tokens: LayerEmbeddingSpec of models/decoder_spec.h.
#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kLayerWarps = 4;

// Each warp computes one layer of a row. It reads the projection twice, because the width is not
// limited, so the projection may not fit in registers.
__global__ void __launch_bounds__(kLayerWarps * 32)
    LayerEmbeddingsKernel(RowsLaunch<device::LayerEmbeddingsArgs> launch) {
  const device::LayerEmbeddingsArgs& args = launch.args;
  const int64_t task = int64_t{blockIdx.x} * kLayerWarps + threadIdx.x / 32;
  if (task >= args.rows * args.num_layers) return;
  const int64_t row = task / args.num_layers, layer = task % args.num_layers;
  const int64_t first = int64_t{threadIdx.x % 32} * kVector, step = 32 * kVector;
  float* x = args.x + task * args.width;
  float squares = 0;
  for (int64_t col = first; col < args.width; col += step) {
    float values[kVector];
    LoadVector(x, ElementType::kF32, col, kVector, launch.wide, values);
    SLUICE_UNROLL
    for (float& value : values) {
      value *= args.projection_scale;
      squares += value * value;
    }
  }
  const float factor = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(args.width) + args.eps);
  // -1: no token could be drawn; the row's result is not used.
  const int64_t token = args.tokens[row] < 0 ? 0 : args.tokens[row];
  const int64_t table_begin = (token * args.num_layers + layer) * args.width;
  for (int64_t col = first; col < args.width; col += step) {
    float values[kVector], weight[kVector], own[kVector];
    LoadVector(x, ElementType::kF32, col, kVector, launch.wide, values);
    LoadVector(args.weight, ElementType::kF32, col, kVector, launch.wide, weight);
    LoadVector(args.table, ElementType::kBF16, table_begin + col, kVector, launch.wide, own);
    SLUICE_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const float normed = weight[i] * (values[i] * args.projection_scale * factor);
      values[i] = (normed + own[i] * args.table_scale) * args.sum_scale;
    }
    StoreVector(x, ElementType::kF32, col, kVector, launch.wide, values, 1);
  }
}

}  // namespace

void LaunchLayerEmbeddings(const StreamHandle& stream, const device::LayerEmbeddingsArgs& args) {
  const bool wide = IsWide(args.x, args.width) && IsWide(args.table, args.width) &&
                    IsWide(args.weight, args.width);
  LaunchShape shape;
  shape.grid_x =
      static_cast<unsigned>((args.rows * args.num_layers + kLayerWarps - 1) / kLayerWarps);
  shape.threads = kLayerWarps * 32;
  Launch<LayerEmbeddingsKernel>(stream, "layer_embeddings", shape,
                                RowsLaunch<device::LayerEmbeddingsArgs>{args, wide});
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
