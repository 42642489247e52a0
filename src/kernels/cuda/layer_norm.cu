#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kNormThreads = 512;
constexpr int kMostNormVectors = device::kMostLayerNormCols / (kNormThreads * kVector);

// A block computes one row, which is kept in registers: kVectors vectors per thread. The variance
// is computed from differences to the mean, so that a large mean does not reduce the precision.
template <int kVectors>
__global__ void __launch_bounds__(kNormThreads)
    LayerNormKernel(RowsLaunch<device::LayerNormArgs> launch) {
  const device::LayerNormArgs& args = launch.args;
  const bool wide = launch.wide;
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int64_t row = blockIdx.x, cols = args.cols, row_begin = row * cols;
  float values[kVectors][kVector];
  float sum = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t col = (int64_t{i} * blockDim.x + threadIdx.x) * kVector;
    const int count = VectorCount(col, cols);
    LoadVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values[i]);
    if (args.delta != nullptr) {
      float delta[kVector];
      LoadVector(args.delta, ElementType::kF32, row_begin + col, count, wide, delta);
      SLUICE_UNROLL
      for (int j = 0; j < kVector; ++j) values[i][j] += delta[j];
      if (!args.keeps_norm)
        StoreVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values[i], 1);
    }
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) sum += values[i][j];
  }
  const float mean = BlockSum(sum, shared) / static_cast<float>(cols);
  float squares = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int count = VectorCount((int64_t{i} * blockDim.x + threadIdx.x) * kVector, cols);
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) {
      values[i][j] = j < count ? values[i][j] - mean : 0.0f;
      squares += values[i][j] * values[i][j];
    }
  }
  const float variance = BlockSum(squares, shared + 32) / static_cast<float>(cols);
  const float factor = 1.0f / sqrtf(variance + args.eps);
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t col = (int64_t{i} * blockDim.x + threadIdx.x) * kVector;
    const int count = VectorCount(col, cols);
    float weight[kVector], bias[kVector] = {};
    LoadVector(args.weight, ElementType::kF32, col, count, wide, weight);
    if (args.bias != nullptr) LoadVector(args.bias, ElementType::kF32, col, count, wide, bias);
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) values[i][j] = values[i][j] * factor * weight[j] + bias[j];
    if (args.keeps_norm)
      StoreVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values[i], 1);
    if (args.out_f32 != nullptr)
      StoreVector(args.out_f32, ElementType::kF32, row_begin + col, count, wide, values[i], 1);
    if (args.out != nullptr)
      StoreVector(args.out, ElementType::kBF16, row_begin + col, count, wide, values[i], 1);
  }
}

}  // namespace

void LaunchLayerNorm(const StreamHandle& stream, const device::LayerNormArgs& args) {
  const int64_t cols = args.cols;
  const bool wide = IsWide(args.residual, cols) && IsWide(args.delta, cols) &&
                    IsWide(args.weight, cols) && IsWide(args.bias, cols) &&
                    IsWide(args.out, cols) && IsWide(args.out_f32, cols);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.threads = RowThreads(cols, kNormThreads);
  shape.shared_bytes = 64 * sizeof(float);
  const RowsLaunch<device::LayerNormArgs> launch{args, wide};
  if (cols <= int64_t{shape.threads} * kVector)
    Launch<LayerNormKernel<1>>(stream, "layer_norm", shape, launch);
  else
    Launch<LayerNormKernel<kMostNormVectors>>(stream, "layer_norm", shape, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
