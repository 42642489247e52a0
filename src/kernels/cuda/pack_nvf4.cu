// Converts rows that were rounded as RowScale::kNvF4 to the operands of tensor cores: codes, and
// scales in the order of nvf4_scales.h. A group's scale need not be stored with the rounded
// numbers: it can be recovered from them.
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMostThreads = 256;

// Returns the code of an E2M1 number; NaN becomes the code of 6.
__device__ __forceinline__ uint32_t E2m1Code(float value) {
  const uint32_t bits = BitsOf(RoundToE2m1(value));
  // Lowers the exponent's bias from 127 to 1.
  return BitsOf(FloatFromBits(bits & 0x7FFFFFFFu) * 0x1p-126f) >> 22 | (bits >> 28 & 8u);
}

// Recovers a scale with which every number of the group is an E2M1 number times it. The largest
// number of a group is 6 times its scale. It is less if the scale is one of the three smallest, and
// so was rounded from a distant number.
__device__ __forceinline__ float GroupScaleOf(const float (&values)[2][kVector]) {
  constexpr float kLeast = 0x1p-9f;  // the smallest E4M3 number
  uint32_t bits = LargestBits(values[0]);
  const uint32_t others = LargestBits(values[1]);
  bits = others > bits ? others : bits;
  const float largest = FloatFromBits(bits);
  if (!(largest <= 12 * kLeast)) return largest / 6.0f;
  if (largest == 0) return 0;
  for (int times = 1; times < 3; ++times) {
    const float scale = static_cast<float>(times) * kLeast;
    bool is_exact = true;
    SLUICE_UNROLL
    for (int i = 0; i < 2 * kVector; ++i) {
      const float value = values[i / kVector][i % kVector];
      is_exact = is_exact && RoundToE2m1(value / scale) * scale == value;
    }
    if (is_exact) return scale;
  }
  return 3 * kLeast;
}

// There is one thread per group of a row, including the padding groups and rows of the last tiles
// of scales.
__global__ void __launch_bounds__(kMostThreads) PackNvF4Kernel(device::PackNvF4Args args) {
  const int64_t row = blockIdx.x, groups = args.cols / device::kNvF4Group;
  const int64_t group = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const int64_t tile_groups = device::kNvF4TileGroups;
  if (group >= (groups + tile_groups - 1) / tile_groups * tile_groups) return;
  uint8_t* scale_place =
      args.scales + device::NvF4ScaleRow(row, groups) + device::NvF4ScaleGroup(group);
  if (row >= args.rows || group >= groups) {
    *scale_place = 0;
    return;
  }
  const int64_t first = row * args.cols + group * device::kNvF4Group;
  float values[2][kVector];
  for (int half = 0; half < 2; ++half)
    LoadVector(args.x, ElementType::kBF16, first + half * kVector, kVector, true, values[half]);
  const float scale = GroupScaleOf(values);
  *scale_place = FloatToE4m3(scale);
  uint32_t words[2] = {0, 0};
  if (scale != 0) {
    SLUICE_UNROLL
    for (int half = 0; half < 2; ++half) {
      SLUICE_UNROLL
      for (int i = 0; i < kVector; ++i) words[half] |= E2m1Code(values[half][i] / scale) << (4 * i);
    }
  }
  *reinterpret_cast<uint2*>(args.codes + first / 2) = make_uint2(words[0], words[1]);
}

}  // namespace

void LaunchPackNvF4(const StreamHandle& stream, const device::PackNvF4Args& args) {
  const int64_t tile_rows = device::kNvF4TileRows;
  const int64_t groups = (args.cols / device::kNvF4Group + 31) / 32 * 32;
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.rows + tile_rows - 1) / tile_rows * tile_rows);
  shape.threads = groups < kMostThreads ? static_cast<unsigned>(groups) : kMostThreads;
  shape.grid_y = static_cast<unsigned>((groups + shape.threads - 1) / shape.threads);
  Launch<PackNvF4Kernel>(stream, "pack_nvf4", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
