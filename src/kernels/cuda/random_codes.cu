#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/nvf4_scales.h"
#include "kernels/random_bits.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {
namespace {

constexpr unsigned kCodeThreads = 256;

__device__ __forceinline__ uint8_t ValidCode(ElementType type, uint8_t byte) {
  if (type == ElementType::kF8E4M3) return kernels::ValidE4m3Code(byte);
  if (type == ElementType::kI8) return kernels::ValidI8Code(byte);
  return byte;
}

__host__ __device__ __forceinline__ int64_t RowBytes(ElementType type, int64_t cols) {
  if (type == ElementType::kF4E2M1 || type == ElementType::kInt4) return cols / 2;
  return type == ElementType::kBF16 ? cols * 2 : cols;
}

// A thread generates eight bytes of a row from a single random number.
__global__ void RandomCodesKernel(device::RandomCodesArgs args) {
  const bool is_bf16 = args.type == ElementType::kBF16;
  const int64_t row_bytes = RowBytes(args.type, args.cols);
  const int64_t at = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
  if (at >= row_bytes) return;
  const int64_t row = blockIdx.x;
  const uint64_t bits =
      kernels::RowBits(args.tensor_seed, args.first_row + row, is_bf16 ? at / 2 : at);
  uint64_t codes = 0;
  if (is_bf16) {
    for (int i = 0; i < 4; ++i) {
      const float value = kernels::UniformNumber(bits >> (16 * i), args.scale);
      codes |= static_cast<uint64_t>(FloatToBf16(value)) << (16 * i);
    }
  } else {
    for (int i = 0; i < 8; ++i) {
      const uint8_t code = ValidCode(args.type, static_cast<uint8_t>(bits >> (8 * i)));
      codes |= static_cast<uint64_t>(code) << (8 * i);
    }
  }
  unsigned char* to = static_cast<unsigned char*>(args.out) + row * row_bytes + at;
  if (row_bytes % 8 == 0 && reinterpret_cast<uintptr_t>(args.out) % 8 == 0) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32));
    return;
  }
  for (int i = 0; i < 8; ++i) {
    if (at + i < row_bytes) to[i] = static_cast<unsigned char>(codes >> (8 * i));
  }
}

__global__ void RandomScalesKernel(device::RandomScalesArgs args) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  auto* const bytes = static_cast<uint8_t*>(args.out);
  if (args.type == device::GroupScales::kBlock || args.type == device::GroupScales::kWithZeros)
    static_cast<float*>(args.out)[i] = args.value;
  else if (args.type == device::GroupScales::kE8M0)
    bytes[i] = static_cast<uint8_t>(args.value);
  else
    bytes[device::NvF4ScaleRow(args.first_row + i / args.groups, args.groups) +
          device::NvF4ScaleGroup(i % args.groups)] =
        kernels::RandomE4m3Scale(args.tensor_seed, args.first_tensor_row * args.groups + i);
}

}  // namespace

void LaunchRandomCodes(const StreamHandle& stream, const device::RandomCodesArgs& args) {
  const int64_t row_bytes = RowBytes(args.type, args.cols);
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>(args.rows);
  shape.grid_y = static_cast<unsigned>((row_bytes + kCodeThreads * 8 - 1) / (kCodeThreads * 8));
  shape.threads = kCodeThreads;
  Launch<RandomCodesKernel>(stream, "random_codes", shape, args);
}

void LaunchRandomScales(const StreamHandle& stream, const device::RandomScalesArgs& args) {
  LaunchShape shape;
  shape.grid_x = static_cast<unsigned>((args.count + kCodeThreads - 1) / kCodeThreads);
  shape.threads = kCodeThreads;
  Launch<RandomScalesKernel>(stream, "random_scales", shape, args);
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
