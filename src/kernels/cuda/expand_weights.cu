// Expands weights of any format to BF16, for a library that multiplies only BF16.
//
// Values are rounded once, from the F32 product of code and scales. Without row_scales (null:
// scale_results applies them later) all values are exact, except with block scales.
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

using device::ExpandWeightsArgs;
using device::GroupScales;

namespace {

constexpr int kExpandThreads = 256;

// Loads eight codes, which always share a single scale. The zero point of INT4 is not subtracted
// yet.
template <ElementType kType>
__device__ __forceinline__ void LoadEight(const void* codes, int64_t first, float (&values)[8]) {
  if constexpr (kType == ElementType::kF8E4M3 || kType == ElementType::kI8) {
    const uint2 bytes =
        __ldg(reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(codes) + first));
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) {
      const auto byte = static_cast<uint8_t>((i < 4 ? bytes.x : bytes.y) >> (i % 4 * 8));
      values[i] = kType == ElementType::kF8E4M3 ? E4m3ToFloat(byte)
                                                : static_cast<float>(static_cast<int8_t>(byte));
    }
  } else {
    const uint32_t word =
        __ldg(reinterpret_cast<const uint32_t*>(static_cast<const uint8_t*>(codes) + first / 2));
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t code = word >> (4 * i) & 15u;
      values[i] = kType == ElementType::kInt4 ? static_cast<float>(code) : E2m1ToFloat(code);
    }
  }
}

// Returns the word that contains the scale and the zero point of INT4.
__device__ __forceinline__ uint32_t GroupWord(const device::Weights& w, int64_t row, int64_t k) {
  const int64_t per_row = (w.k + w.group - 1) / w.group;
  return static_cast<const uint32_t*>(w.group_scales)[row * per_row + k / w.group];
}

__device__ __forceinline__ float GroupScale(const device::Weights& w, int64_t row, int64_t k) {
  if (w.group_type == GroupScales::kNone) return 1;
  if (w.group_type == GroupScales::kWithZeros)
    return FloatFromBits(GroupWord(w, row, k) & ~device::kInt4ZeroMask);
  const int64_t per_row = (w.k + w.group - 1) / w.group, column = k / w.group;
  if (w.group_type == GroupScales::kBlock)
    return static_cast<const float*>(w.group_scales)[row / w.block_rows * per_row + column];
  const auto* bytes = static_cast<const uint8_t*>(w.group_scales);
  if (w.group_type == GroupScales::kE4M3)
    return E4m3ToFloat(bytes[device::NvF4ScaleRow(row, per_row) + device::NvF4ScaleGroup(column)]);
  return E8m0ToFloat(bytes[row * per_row + column]);
}

}  // namespace

template <ElementType kType>
__global__ void __launch_bounds__(kExpandThreads) ExpandWeightsKernel(ExpandWeightsArgs args) {
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kExpandThreads + threadIdx.x;
  const int64_t pieces_of_row = args.w.k / 8;
  if (piece >= args.rows * pieces_of_row) return;
  const int64_t row = args.first_row + piece / pieces_of_row, k = piece % pieces_of_row * 8;
  const int64_t first = row * args.w.k + k;
  uint4 packed;
  if constexpr (kType == ElementType::kBF16) {
    packed =
        __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(args.w.codes) + first));
    // On a device, BF16 weights have no scales.
  } else {
    float values[8];
    LoadEight<kType>(args.w.codes, first, values);
    if constexpr (kType == ElementType::kInt4) {
      const auto zero = static_cast<float>(GroupWord(args.w, row, k) & device::kInt4ZeroMask);
      SLUICE_UNROLL
      for (float& value : values) value -= zero;
    }
    const float group_scale = GroupScale(args.w, row, k);
    const float row_scale = args.w.row_scales != nullptr ? args.w.row_scales[row] : 1.0f;
    SLUICE_UNROLL
    for (int i = 0; i < 8; ++i) values[i] = values[i] * group_scale * row_scale;
    packed = make_uint4(PackBf16(values[0], values[1]), PackBf16(values[2], values[3]),
                        PackBf16(values[4], values[5]), PackBf16(values[6], values[7]));
  }
  *reinterpret_cast<uint4*>(args.out + piece * 8) = packed;
}

namespace {

template <ElementType kType>
void LaunchExpand(const StreamHandle& stream, const ExpandWeightsArgs& args) {
  const int64_t pieces = args.rows * args.w.k / 8;
  Launch<ExpandWeightsKernel<kType>>(
      stream, "expand_weights",
      {.grid_x = static_cast<unsigned>((pieces + kExpandThreads - 1) / kExpandThreads),
       .threads = kExpandThreads},
      args);
}

}  // namespace

void LaunchExpandWeights(const StreamHandle& stream, const ExpandWeightsArgs& args) {
  switch (args.w.type) {
    case ElementType::kBF16: return LaunchExpand<ElementType::kBF16>(stream, args);
    case ElementType::kF8E4M3: return LaunchExpand<ElementType::kF8E4M3>(stream, args);
    case ElementType::kI8: return LaunchExpand<ElementType::kI8>(stream, args);
    case ElementType::kInt4: return LaunchExpand<ElementType::kInt4>(stream, args);
    case ElementType::kF4E2M1: return LaunchExpand<ElementType::kF4E2M1>(stream, args);
    default: break;
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
