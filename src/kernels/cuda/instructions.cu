// Kernels that run the instructions of device_code.h one by one, so that `sluice selftest` can
// check each against its description. All other kernels use the same instructions.
#include <math.h>

#include "kernels/cuda/device_code.h"
#include "kernels/cuda/device_kernels.h"

namespace sluice::SLUICE_DEVICE_NAMESPACE {

using device::Instruction;
using device::InstructionArgs;

// Packs the numbers of a register for MultiplyTiles: d [16, 8] = the sum over `count` tiles of a
// [16, 8 * kPerRegister] b [8 * kPerRegister, 8]; tiles are consecutive and row-major.
template <typename T>
__device__ __forceinline__ uint32_t PackTileNumbers(const T* from, int stride) {
  constexpr int kPerRegister = 4 / static_cast<int>(sizeof(T));
  uint32_t bits = 0;
  for (int i = 0; i < kPerRegister; ++i)
    bits |= static_cast<uint32_t>(from[i * stride]) << (32 / kPerRegister * i);
  return bits;
}

template <typename T, bool kIsF16 = false>
__device__ __forceinline__ void MultiplyTiles(const InstructionArgs& args) {
  constexpr int kPerRegister = 4 / static_cast<int>(sizeof(T));
  constexpr int kDepth = 8 * kPerRegister;
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  float d[4] = {0, 0, 0, 0};
  for (int64_t tile = 0; tile < args.count; ++tile) {
    const T* a_tile = static_cast<const T*>(args.a) + tile * 16 * kDepth;
    const T* b_tile = static_cast<const T*>(args.b) + tile * kDepth * 8;
    uint32_t a[4], b[2];
    for (int r = 0; r < 4; ++r) {
      const int row = g + r % 2 * 8, column = kPerRegister * t + r / 2 * kDepth / 2;
      a[r] = PackTileNumbers(a_tile + row * kDepth + column, 1);
    }
    for (int r = 0; r < 2; ++r) {
      const int row = kPerRegister * t + r * kDepth / 2;
      b[r] = PackTileNumbers(b_tile + row * 8 + g, 8);
    }
    if constexpr (kIsF16)
      MmaF16(d, a, b);
    else if constexpr (kPerRegister == 2)
      MmaBf16(d, a, b);
    else
      MmaE4m3(d, a, b);
  }
  for (int r = 0; r < 4; ++r)
    static_cast<float*>(args.out)[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

__global__ void MmaBf16Kernel(InstructionArgs args) {
  MultiplyTiles<uint16_t>(args);
}

__global__ void MmaF16Kernel(InstructionArgs args) {
  MultiplyTiles<uint16_t, /*kIsF16=*/true>(args);
}

__global__ void MmaE4m3Kernel(InstructionArgs args) {
  if (HasE4m3Mma()) MultiplyTiles<uint8_t>(args);
}

// Loads four matrices of 8 x 8 16-bit numbers with LoadMatrix4 and LoadMatrix4Transposed: out [2,
// 32 lanes, 4 registers].
__global__ void LoadMatrixKernel(InstructionArgs args) {
  auto* shared = reinterpret_cast<uint16_t*>(SharedMemory());
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) shared[i] = static_cast<const uint16_t*>(args.a)[i];
  __syncwarp();
  auto* out = static_cast<uint32_t*>(args.out);
  uint32_t registers[4];
  LoadMatrix4(registers, shared + lane * 8);
  for (int m = 0; m < 4; ++m) out[lane * 4 + m] = registers[m];
  LoadMatrix4Transposed(registers, shared + lane * 8);
  for (int m = 0; m < 4; ++m) out[128 + lane * 4 + m] = registers[m];
}

// Copies `count` times 128 pieces of 16 bytes through two stages of shared memory; one is copied
// while the other is read. Pieces whose byte in `b` is 0 become zeros.
__global__ void AsyncCopyKernel(InstructionArgs args) {
  auto* shared = reinterpret_cast<uint4*>(SharedMemory());
  const auto* from = static_cast<const uint4*>(args.a);
  const auto* is_valid = static_cast<const uint8_t*>(args.b);
  auto* out = static_cast<uint4*>(args.out);
  const int thread = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int64_t step) {
    if (step < args.count) {
      const int64_t piece = step * 128 + thread;
      AsyncCopy16(shared + step % 2 * 128 + thread, from + piece, is_valid[piece] != 0);
    }
    AsyncCommit();
  };
  fetch(0);
  for (int64_t step = 0; step < args.count; ++step) {
    fetch(step + 1);
    AsyncWait<1>();
    __syncthreads();
    // Each piece is read by another thread than the one that copied it.
    out[step * 128 + 127 - thread] = shared[step % 2 * 128 + 127 - thread];
    __syncthreads();
  }
}

// Decodes all codes: out = [65536] BF16, [256] E4M3, [256] E8M0, [16] E2M1.
__global__ void DecodeKernel(InstructionArgs args) {
  auto* out = static_cast<float*>(args.out);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  out[i] = Bf16ToFloat(static_cast<uint16_t>(i));
  if (i < 256) {
    out[65536 + i] = E4m3ToFloat(static_cast<uint8_t>(i));
    out[65536 + 256 + i] = E8m0ToFloat(static_cast<uint8_t>(i));
  }
  if (i < 16) out[65536 + 512 + i] = E2m1ToFloat(static_cast<uint32_t>(i));
}

// Encodes numbers: out [count] of 32 bits. Bits 0 to 15: the BF16 code; 16 to 23: the E4M3 code; 24
// to 31: the E4M3 code again, packed as the second of two numbers.
__global__ void EncodeKernel(InstructionArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  const float value = static_cast<const float*>(args.a)[i];
  static_cast<uint32_t*>(args.out)[i] = FloatToBf16(value) |
                                        static_cast<uint32_t>(FloatToE4m3(value)) << 16 |
                                        (PackE4m3(1.0f, value) & 0xFF00u) << 16;
}

// Converts to pairs of F16: out [count + 256] of 32 bits. First `count` words: number i, with
// number count - 1 - i in the high half. Then all E4M3 codes in order as F16, then as BF16.
// REQUIRES: count >= 64.
__global__ void HalvesKernel(InstructionArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto* numbers = static_cast<const float*>(args.a);
  auto* out = static_cast<uint32_t*>(args.out);
  if (i < args.count) out[i] = PackF16(numbers[i], numbers[args.count - 1 - i]);
  if (i < 64) {
    const uint32_t codes = static_cast<uint32_t>(i) * 0x04040404u + 0x03020100u;
    uint32_t* f16 = out + args.count + 2 * i;
    E4m3x4ToF16(codes, f16[0], f16[1]);
    E4m3x4ToBf16(codes, f16[128], f16[129]);
  }
}

// For 32 elements, one per lane: out [4, 32] = the sum, the maximum, the previous lane's element
// (lane 0: lane 31's), and the count of positive elements.
__global__ void WarpKernel(InstructionArgs args) {
  const int lane = static_cast<int>(threadIdx.x);
  const float value = static_cast<const float*>(args.a)[lane];
  auto* out = static_cast<float*>(args.out);
  out[lane] = WarpSum(value);
  out[32 + lane] = WarpMax(value);
  out[64 + lane] = __shfl_sync(0xFFFFFFFFu, value, (lane + 31) % 32);
  out[96 + lane] = static_cast<float>(__popc(__ballot_sync(0xFFFFFFFFu, value > 0)));
}

// Math functions of `count` elements x: out [6, count] = exp(x), 1 / sqrt(|x|), sin(x), cos(x),
// log1p(|x|), 1 / x.
__global__ void MathKernel(InstructionArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= args.count) return;
  const float x = static_cast<const float*>(args.a)[i];
  auto* out = static_cast<float*>(args.out);
  out[i] = expf(x);
  out[args.count + i] = rsqrtf(fabsf(x));
  out[2 * args.count + i] = sinf(x);
  out[3 * args.count + i] = cosf(x);
  out[4 * args.count + i] = log1pf(fabsf(x));
  out[5 * args.count + i] = 1.0f / x;
}

void LaunchInstruction(const StreamHandle& stream, const InstructionArgs& args) {
  const auto blocks = static_cast<unsigned>((args.count + 127) / 128);
  switch (args.instruction) {
    case Instruction::kMmaBf16: return Launch<MmaBf16Kernel>(stream, "mma_bf16", {}, args);
    case Instruction::kMmaF16: return Launch<MmaF16Kernel>(stream, "mma_f16", {}, args);
    case Instruction::kMmaE4m3: return Launch<MmaE4m3Kernel>(stream, "mma_e4m3", {}, args);
    case Instruction::kLoadMatrix:
      return Launch<LoadMatrixKernel>(stream, "load_matrix", {.shared_bytes = 512}, args);
    case Instruction::kAsyncCopy:
      return Launch<AsyncCopyKernel>(stream, "async_copy",
                                     {.threads = 128, .shared_bytes = 2 * 128 * 16}, args);
    case Instruction::kDecode:
      return Launch<DecodeKernel>(stream, "decode", {.grid_x = 256, .threads = 256}, args);
    case Instruction::kEncode:
      return Launch<EncodeKernel>(stream, "encode", {.grid_x = blocks, .threads = 128}, args);
    case Instruction::kHalves:
      return Launch<HalvesKernel>(stream, "halves", {.grid_x = blocks, .threads = 128}, args);
    case Instruction::kWarp: return Launch<WarpKernel>(stream, "warp", {}, args);
    case Instruction::kMath:
      return Launch<MathKernel>(stream, "math", {.grid_x = blocks, .threads = 128}, args);
  }
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
