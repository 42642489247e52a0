#include "kernels/cuda/device_rows.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMaxThreads = 512;

// Each block computes one row, which is stored in registers: kVectors vectors per thread. With
// kVectors 0, the row may have any size, and threads read it again each time.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormKernel(RowsLaunch<device::RmsNormArgs> launch) {
  BeginOverlapping();
  constexpr bool kHolds = kVectors > 0;
  const device::RmsNormArgs& args = launch.args;
  const bool wide = launch.wide;
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int64_t row = blockIdx.x, cols = args.cols, row_begin = row * cols;
  if (WritePadding(args.out, row, args.rows, cols)) return;
  float held[kHolds ? kVectors : 1][kVector];
  // Calls visit(column, values) for this thread's vectors.
  const auto visit_vectors = [&](const auto& visit) {
    if constexpr (kHolds) {
      SLUICE_UNROLL
      for (int i = 0; i < kVectors; ++i)
        visit((int64_t{i} * blockDim.x + threadIdx.x) * kVector, held[i]);
    } else {
      // The loop runs the same number of times in all threads of a warp.
      for (int64_t first = 0; first < cols; first += int64_t{blockDim.x} * kVector)
        visit(first + int64_t{threadIdx.x} * kVector, held[0]);
    }
  };
  float squares = 0;
  visit_vectors([&](int64_t col, float(&values)[kVector]) {
    const int count = VectorCount(col, cols);
    LoadVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values);
    if (args.delta != nullptr) {
      float delta[kVector];
      LoadVector(args.delta, args.delta_type, row_begin + col, count, wide, delta);
      SLUICE_UNROLL
      for (int j = 0; j < kVector; ++j)
        values[j] = (values[j] + delta[j] * args.delta_factor) * args.sum_factor;
      StoreVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values, 1);
    }
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) squares += values[j] * values[j];
  });
  const float mean = BlockSum(squares, shared) / static_cast<float>(cols);
  const float factor = 1.0f / sqrtf(mean + args.eps);
  const auto normalize = [&](int64_t col, float(&values)[kVector]) {
    const int count = VectorCount(col, cols);
    if constexpr (!kHolds)
      LoadVector(args.residual, ElementType::kF32, row_begin + col, count, wide, values);
    if (args.weight == nullptr) return;
    float weight[kVector];
    LoadVector(args.weight, ElementType::kF32, col, count, wide, weight);
    SLUICE_UNROLL
    for (int j = 0; j < kVector; ++j) values[j] = weight[j] * (values[j] * factor);
  };
  float scale = args.out.static_scale;
  if (kHolds || IsPerToken(args.out)) {
    uint32_t largest = 0;
    visit_vectors([&](int64_t col, float(&values)[kVector]) {
      normalize(col, values);
      const uint32_t bits = LargestBits(values);
      largest = bits > largest ? bits : largest;
    });
    if (IsPerToken(args.out))
      scale = PerTokenScale(BlockMax(largest, reinterpret_cast<uint32_t*>(shared + 32)));
  }
  if (HasRowScales(args.out) && threadIdx.x == 0) args.out.scales[row] = scale;
  visit_vectors([&](int64_t col, float(&values)[kVector]) {
    if constexpr (!kHolds) normalize(col, values);
    const int count = VectorCount(col, cols);
    if (args.out_f32 != nullptr)
      StoreVector(args.out_f32, ElementType::kF32, row_begin + col, count, wide, values, 1);
    if (IsNvF4(args.out)) {
      // The adjacent thread has the other half of the group.
      const uint32_t own = LargestBits(values), other = __shfl_xor_sync(0xFFFFFFFFu, own, 1);
      RoundToNvF4(own > other ? own : other, scale, values);
      if (args.out.codes != nullptr)
        PackNvF4Half(args.out.codes, args.out.group_scales, row, cols, col, count, values);
    } else if (IsMxF4(args.out)) {
      RoundToMxF4(LargestOfMxF4Group(values), values);
    }
    StoreVector(args.out.data, args.out.type, row_begin + col, count, wide, values, scale);
  });
}

}  // namespace

void LaunchRmsNorm(const StreamHandle& stream, const device::RmsNormArgs& args) {
  const int64_t cols = args.cols;
  const bool wide = IsWide(args.residual, cols) && IsWide(args.delta, cols) &&
                    IsWide(args.weight, cols) && IsWide(args.out, cols) &&
                    IsWide(args.out_f32, cols);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(LaunchedRows(args.out, args.rows));
  shape.threads = RowThreads(cols, kMaxThreads);
  shape.shared_bytes = 64 * sizeof(float);
  shape.overlaps = true;
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
    Launch<RmsNormKernel<0>>(stream, "rms_norm", shape, launch);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
