#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMaxThreads = 512;

// A block for each row, which it holds in registers: kVectors vectors a thread.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormKernel(RowsLaunch<device::RmsNormArgs> launch) {
  const device::RmsNormArgs& args = launch.args;
  const bool wide = launch.wide;
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int64_t row = blockIdx.x, cols = args.cols, row_begin = row * cols;
  float values[kVectors][kVector];
  float squares = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t col = (int64_t{i} * blockDim.x + threadIdx.x) * kVector;
    const int count = VectorCount(col, cols);
    LoadVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values[i]);
    if (args.delta != nullptr) {
      float delta[kVector];
      LoadVector(args.delta, args.delta_type, row_begin + col, count, wide, delta);
      SLUICE_UNROLL
      for (int j = 0; j < kVector; ++j) values[i][j] = (values[i][j] + delta[j]) * args.sum_factor;
      StoreVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values[i], 1);
    }
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) squares += values[i][j] * values[i][j];
  }
  const float mean = BlockSum(squares, shared) / static_cast<float>(cols);
  const float factor = 1.0f / sqrtf(mean + args.eps);
  uint32_t largest = 0;
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t col = (int64_t{i} * blockDim.x + threadIdx.x) * kVector;
    const int count = VectorCount(col, cols);
    if (args.weight != nullptr) {
      float weight[kVector];
      LoadVector(args.weight, ElementType::kF32, col, count, wide, weight);
      SLUICE_UNROLL
      for (int j = 0; j < kVector; ++j) values[i][j] = weight[j] * (values[i][j] * factor);
    }
    const uint32_t bits = LargestBits(values[i]);
    largest = bits > largest ? bits : largest;
  }
  float scale = args.out.static_scale;
  if (IsPerToken(args.out))
    scale = PerTokenScale(BlockMax(largest, reinterpret_cast<uint32_t*>(shared + 32)));
  if (HasRowScales(args.out) && threadIdx.x == 0) args.out.scales[row] = scale;
  SLUICE_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    const int64_t col = (int64_t{i} * blockDim.x + threadIdx.x) * kVector;
    const int count = VectorCount(col, cols);
    if (args.out_f32 != nullptr)
      StoreVector(args.out_f32, ElementType::kF32, row_begin + col, count, wide, values[i], 1);
    if (IsNvF4(args.out)) {
      // The other half of the group is a neighbour's.
      const uint32_t own = LargestBits(values[i]), other = __shfl_xor_sync(0xFFFFFFFFu, own, 1);
      RoundToNvF4(own > other ? own : other, scale, values[i]);
    }
    StoreVector(args.out.data, args.out.type, row_begin + col, count, wide, values[i], scale);
  }
}

}  // namespace

void LaunchRmsNorm(const StreamHandle& stream, const device::RmsNormArgs& args) {
  const int64_t cols = args.cols;
  const bool wide = IsWide(args.residual, cols) && IsWide(args.delta, cols) &&
                    IsWide(args.weight, cols) && IsWide(args.out, cols) &&
                    IsWide(args.out_f32, cols);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.threads = RowThreads(cols, kMaxThreads);
  shape.shared_bytes = 64 * sizeof(float);
  const int64_t vectors =
      (cols + int64_t{shape.threads} * kVector - 1) / (int64_t{shape.threads} * kVector);
  const RowsLaunch<device::RmsNormArgs> launch{args, wide};
  if (vectors <= 1)
    Launch<RmsNormKernel<1>>(stream, "rms_norm", shape, launch);
  else if (vectors <= 2)
    Launch<RmsNormKernel<2>>(stream, "rms_norm", shape, launch);
  else if (vectors <= 4)
    Launch<RmsNormKernel<4>>(stream, "rms_norm", shape, launch);
  else
    Launch<RmsNormKernel<8>>(stream, "rms_norm", shape, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
