// From rows that were rounded as RowScale::kNvF4 to what tensor cores take: codes, and scales in
// the order of nvf4_scales.h. The scale of a group need not be stored beside rounded numbers: it
// can be told from them.
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/nvf4_scales.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kMostThreads = 256;

// The code of a number that is one of E2M1; NaN becomes the code of 6.
__device__ __forceinline__ uint32_t E2m1Code(float value) {
  const uint32_t bits = BitsOf(RoundToE2m1(value));
  // The exponent's bias falls from 127 to 1.
  return BitsOf(FloatFromBits(bits & 0x7FFFFFFFu) * 0x1p-126f) >> 22 | (bits >> 28 & 8u);
}

// A scale of which all numbers of the group are multiples by E2M1 numbers. The largest of a group
// is 6 times its scale, or less where the scale was one of the three smallest and so rounded from a
// number far from it.
__device__ __forceinline__ float GroupScaleOf(const float (&values)[2][kVector]) {
  constexpr float kLeast = 0x1p-9f;  // of E4M3
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

// A thread for a group of a row, of those too that fill the last tiles of scales.
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
