// The language of kernels on AMD's CDNA 3 GPUs (gfx942: MI300X, MI325X), compiled by Clang with -x
// hip: `make build-hip` compiles kernels but runs nothing. Replaces HIP's own headers, as those of
// Debian 12 predate these GPUs.
//
// A wave has 64 lanes. Kernels use warps of 32: the halves of a wave, which are separate in
// shuffles, ballots and the functions of tiles. Both halves run the same instructions, since blocks
// have whole warps and branch by warp only around code that both halves treat alike.
//
// Products of tiles are computed lane by lane, from numbers that shuffles bring: the matrix
// instructions of these GPUs (v_mfma_f32_16x16x16) take operands of a whole wave in another order,
// which would need other tiles in the kernels. FP8 of these GPUs is another format (its bias is
// larger by one and it has no negative zero), so E4M3 codes are converted to F16 by arithmetic.
#pragma once

#include <stdint.h>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) \
  __attribute__((amdgpu_flat_work_group_size(1, ::sluice::hip::FirstOf(__VA_ARGS__))))

namespace sluice::hip {

constexpr int kWarp = 32;

// Threads of a block. The compiler chooses how many blocks run together.
template <typename... Others>
constexpr unsigned FirstOf(unsigned threads, Others...) {
  return threads;
}

struct Coordinates {
  unsigned x, y, z;
};
// NOLINTBEGIN: names of CUDA
#define threadIdx (::sluice::hip::ThreadIndex())
#define blockIdx (::sluice::hip::BlockIndex())
#define blockDim (::sluice::hip::BlockSize())
#define gridDim (::sluice::hip::GridSize())
__device__ __forceinline__ Coordinates ThreadIndex() {
  return {__builtin_amdgcn_workitem_id_x(), 0, 0};
}
__device__ __forceinline__ Coordinates BlockIndex() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
          __builtin_amdgcn_workgroup_id_z()};
}
__device__ __forceinline__ Coordinates BlockSize() {
  return {__builtin_amdgcn_workgroup_size_x(), 1, 1};
}
__device__ __forceinline__ Coordinates GridSize() {
  return {__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
          __builtin_amdgcn_grid_size_y(), __builtin_amdgcn_grid_size_z()};
}

struct alignas(8) [[gnu::may_alias]] uint2 {
  unsigned x, y;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) [[gnu::may_alias]] float2 {
  float x, y;
};
struct alignas(16) [[gnu::may_alias]] float4 {
  float x, y, z, w;
};
__device__ __forceinline__ uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
__device__ __forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
__device__ __forceinline__ float2 make_float2(float x, float y) {
  return {x, y};
}
__device__ __forceinline__ float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

template <typename T>
__host__ __device__ constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
__host__ __device__ constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// Declarations of OCML, ROCm's math library (package rocm-device-libs), for the linker.
#define SLUICE_OF_OCML extern "C" __device__ __attribute__((visibility("default"))) float
SLUICE_OF_OCML __ocml_sin_f32(float);
SLUICE_OF_OCML __ocml_cos_f32(float);
SLUICE_OF_OCML __ocml_log1p_f32(float);
__device__ __forceinline__ float sinf(float x) {
  return __ocml_sin_f32(x);
}
__device__ __forceinline__ float cosf(float x) {
  return __ocml_cos_f32(x);
}
__device__ __forceinline__ float log1pf(float x) {
  return __ocml_log1p_f32(x);
}
__device__ __forceinline__ float expf(float x) {
  return __builtin_expf(x);
}
__device__ __forceinline__ float exp2f(float x) {
  return __builtin_exp2f(x);
}
__device__ __forceinline__ float sqrtf(float x) {
  return __builtin_sqrtf(x);
}
__device__ __forceinline__ float rsqrtf(float x) {
  return 1.0f / __builtin_sqrtf(x);
}
__device__ __forceinline__ float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
__device__ __forceinline__ float fmaxf(float a, float b) {
  return __builtin_fmaxf(a, b);
}
__device__ __forceinline__ float fabsf(float x) {
  return __builtin_fabsf(x);
}
__device__ __forceinline__ float floorf(float x) {
  return __builtin_floorf(x);
}

__device__ __forceinline__ int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
__device__ __forceinline__ int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
__device__ __forceinline__ int __ffs(int bits) {
  return __builtin_ffs(bits);
}
__device__ __forceinline__ unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return result;
}

// Must be called by all threads of a block.
__device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ void __syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
__device__ __forceinline__ void __threadfence() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
template <typename T>
__device__ __forceinline__ T atomicAdd(T* address, T value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
__device__ __forceinline__ T atomicExch(T* address, T value) {
  return __hip_atomic_exchange(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
__device__ __forceinline__ T __ldg(const T* address) {
  return *address;
}
// Bypasses the cache of this compute unit.
__device__ __forceinline__ float __ldcg(const float* address) {
  return __hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

__device__ __forceinline__ int LaneOfWave() {
  return static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)));
}
// The value of lane `lane` in this lane's half of the wave.
template <typename T>
__device__ __forceinline__ T FromLane(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0);
  const int from = (LaneOfWave() & kWarp) | (lane & (kWarp - 1));
  T result;
  for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
    int word;
    __builtin_memcpy(&word, reinterpret_cast<const char*>(&value) + 4 * i, 4);
    word = __builtin_amdgcn_ds_bpermute(from * 4, word);
    __builtin_memcpy(reinterpret_cast<char*>(&result) + 4 * i, &word, 4);
  }
  return result;
}
template <typename T>
__device__ __forceinline__ T __shfl_sync(unsigned, T value, int lane) {
  return FromLane(value, lane);
}
template <typename T>
__device__ __forceinline__ T __shfl_xor_sync(unsigned, T value, int mask) {
  return FromLane(value, (LaneOfWave() & (kWarp - 1)) ^ mask);
}
template <typename T>
__device__ __forceinline__ T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const int lane = LaneOfWave() & (kWarp - 1);
  return FromLane(value, lane >= static_cast<int>(delta) ? lane - static_cast<int>(delta) : lane);
}
template <typename T>
__device__ __forceinline__ T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int lane = LaneOfWave() & (kWarp - 1);
  const int from = lane + static_cast<int>(delta);
  return FromLane(value, from < kWarp ? from : lane);
}
__device__ __forceinline__ unsigned __ballot_sync(unsigned, int predicate) {
  const uint64_t wave = __builtin_amdgcn_ballot_w64(predicate != 0);
  return static_cast<unsigned>(LaneOfWave() < kWarp ? wave : wave >> kWarp);
}
// NOLINTEND

__device__ __forceinline__ unsigned char* SharedMemory() {
  extern __attribute__((shared, aligned(128))) unsigned char memory[];
  return memory;
}
__device__ __forceinline__ float FloatFromBits(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
__device__ __forceinline__ uint32_t BitsOf(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
__device__ __forceinline__ int KeptInLoop(int value) {
  asm volatile("" : "+v"(value));
  return value;
}

// These GPUs copy at most 4 bytes at a time to shared memory without registers (gfx950 copies 16),
// so copies are synchronous here.
__device__ __forceinline__ void AsyncCopy16(void* shared, const void* global, bool is_valid) {
  *static_cast<uint4*>(shared) = is_valid ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
}
__device__ __forceinline__ void AsyncCommit() {}
template <int kPending>
__device__ __forceinline__ void AsyncWait() {}

// Contracts: device_code.h.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row) {
  const int lane = LaneOfWave() & (kWarp - 1);
  const auto address = reinterpret_cast<uint64_t>(shared_row);
  for (int m = 0; m < 4; ++m) {
    const uint64_t row = FromLane(address, m * 8 + lane / 4);
    registers[m] = *reinterpret_cast<const uint32_t*>(row + static_cast<unsigned>(lane % 4) * 4);
  }
}
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&registers)[4],
                                                      const void* shared_row) {
  const int lane = LaneOfWave() & (kWarp - 1);
  const auto address = reinterpret_cast<uint64_t>(shared_row);
  for (int m = 0; m < 4; ++m) {
    uint32_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const uint64_t row = FromLane(address, m * 8 + 2 * (lane % 4) + i);
      pair[i] = *reinterpret_cast<const uint16_t*>(row + static_cast<unsigned>(lane / 4) * 2);
    }
    registers[m] = pair[0] | pair[1] << 16;
  }
}

template <typename Number>
__device__ __forceinline__ void MultiplyTiles(float (&d)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2], const Number& number) {
  const int lane = LaneOfWave() & (kWarp - 1), g = lane / 4, t = lane % 4;
  for (int pair = 0; pair < 8; ++pair) {  // columns 2 * pair and 2 * pair + 1 of a, rows of b
    const int from = pair % 4, high = pair / 4;
    const uint32_t rows[2] = {FromLane(a[2 * high], g * 4 + from),
                              FromLane(a[2 * high + 1], g * 4 + from)};
    for (int column = 0; column < 2; ++column) {
      const uint32_t two = FromLane(b[high], (2 * t + column) * 4 + from);
      for (int half = 0; half < 2; ++half) {
        float& sum = d[2 * half + column];
        sum = fmaf(number(rows[half] & 0xFFFFu), number(two & 0xFFFFu), sum);
        sum = fmaf(number(rows[half] >> 16), number(two >> 16), sum);
      }
    }
  }
}
__device__ __forceinline__ float F16ToFloat(uint32_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(bits)));
}
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  MultiplyTiles(d, a, b, [](uint32_t bits) { return FloatFromBits(bits << 16); });
}
__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  MultiplyTiles(d, a, b, [](uint32_t bits) { return F16ToFloat(bits); });
}
__device__ __forceinline__ uint32_t F16Bits(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  return F16Bits(low) | F16Bits(high) << 16;
}
// Raises the exponent's bias from 7 to 15 by a product, which is exact for subnormal codes, too.
__device__ __forceinline__ uint32_t E4m3ToF16(uint32_t code) {
  const uint32_t raised = (code & 0x80u) << 8 | (code & 0x7Fu) << 7;
  return (code & 0x7Fu) == 0x7F ? raised | 0x7FFFu : F16Bits(F16ToFloat(raised) * 256.0f);
}
__device__ __forceinline__ uint32_t HighHalves(float low, float high) {
  return BitsOf(low) >> 16 | (BitsOf(high) & 0xFFFF0000u);
}
// Exact if the F16 numbers are those of E4M3 codes.
__device__ __forceinline__ uint32_t F16x2ToBf16x2(uint32_t pair) {
  return HighHalves(F16ToFloat(pair & 0xFFFFu), F16ToFloat(pair >> 16));
}
__device__ __forceinline__ uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  return PackF16(F16ToFloat(a & 0xFFFFu) * F16ToFloat(b & 0xFFFFu),
                 F16ToFloat(a >> 16) * F16ToFloat(b >> 16));
}
// Selects the branches for a GPU that multiplies E4M3 as F16.
__device__ __forceinline__ constexpr int ComputeCapability() {
  return 90;
}
namespace instruction {
__device__ __forceinline__ void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  low = E4m3ToF16(codes & 0xFFu) | E4m3ToF16(codes >> 8 & 0xFFu) << 16;
  high = E4m3ToF16(codes >> 16 & 0xFFu) | E4m3ToF16(codes >> 24) << 16;
}
// Never called: see ComputeCapability.
__device__ __forceinline__ void MmaE4m3(float (&)[4], const uint32_t (&)[4],
                                        const uint32_t (&)[2]) {
  __builtin_trap();
}
}  // namespace instruction
// Rounded twice, to F32 and to BF16: kernels use it only where the result is exact.
__device__ __forceinline__ uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const float value = fmaf(FloatFromBits(a >> shift << 16), FloatFromBits(b >> shift << 16),
                             FloatFromBits(c >> shift << 16));
    const uint32_t bits = BitsOf(value);
    const uint32_t rounded = value != value ? 0x7FC0u : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    result |= rounded << shift;
  }
  return result;
}

}  // namespace sluice::hip
