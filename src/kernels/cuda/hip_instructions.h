// The instructions of AMD's CDNA GPUs that hip_code.h uses, as Clang's builtin functions.
// hip_emulated.h implements the same functions on the CPU.
#pragma once

#include <stdint.h>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) \
  __attribute__((amdgpu_flat_work_group_size(1, ::sluice::hip::FirstOf(__VA_ARGS__))))

// Declarations that Clang's host code needs (hip_modules.cc defines them). NOLINTBEGIN: names of
// HIP.
struct dim3 {
  unsigned x, y, z;
};
using hipStream_t = void*;
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, hipStream_t);
// NOLINTEND

namespace sluice::hip {

// Number of threads of a block. The compiler chooses how many blocks run together.
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
// NOLINTEND
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

__device__ __forceinline__ unsigned char* SharedMemory() {
  extern __attribute__((shared, aligned(128))) unsigned char memory[];
  return memory;
}
__device__ __forceinline__ int KeptInLoop(int value) {
  asm volatile("" : "+v"(value));
  return value;
}

namespace machine {

// Must be called by all threads of a block.
__device__ __forceinline__ void BlockBarrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ __forceinline__ void HalfBarrier() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
__device__ __forceinline__ void DeviceFence() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
template <typename T>
__device__ __forceinline__ T AtomicAdd(T* address, T value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T>
__device__ __forceinline__ T AtomicExchange(T* address, T value) {
  return __hip_atomic_exchange(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
// Reads past the cache of this compute unit.
__device__ __forceinline__ float LoadPastCache(const float* address) {
  return __hip_atomic_load(address, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// This lane's place in the wave: 0 to 63.
__device__ __forceinline__ int Lane() {
  return static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)));
}
// For one half of a wave: the words that the lanes of this half pass to the constructor.
template <int kWords>
class HalfWords {
 public:
  __device__ __forceinline__ explicit HalfWords(const uint32_t (&own)[kWords]) {
    for (int i = 0; i < kWords; ++i) own_[i] = static_cast<int>(own[i]);
  }
  // Returns word i of lane `from` of the wave, which must be in this lane's half.
  __device__ __forceinline__ uint32_t From(int from, int i) const {
    return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(from * 4, own_[i]));
  }

 private:
  int own_[kWords];
};
// Called by one half of a wave. Returns a bit for each lane of the wave that passes true. The bits
// of the other half are undefined.
__device__ __forceinline__ uint64_t Ballot(bool predicate) {
  return __builtin_amdgcn_ballot_w64(predicate);
}

// Wave: all 64 lanes call the functions below together.

// Like HalfWords, for all lanes of the wave.
template <int kWords>
using WaveWords = HalfWords<kWords>;

// d = a b: a [16, 16] and b [16, 16] of 16 bits, d [16, 16] F32. With i = lane % 16, q = lane / 16:
//   a: row i, columns 4q..4q+3;  b: rows 4q..4q+3 of column i;  d: rows 4q..4q+3 of column i
// The first of two numbers in a register is the low half. (CDNA 3 ISA, V_MFMA_F32_16X16X16.)
__device__ __forceinline__ void Mfma16Bf16(float (&d)[4], const uint32_t (&a)[2],
                                           const uint32_t (&b)[2]) {
  using Words = short __attribute__((ext_vector_type(4)));
  using Sums = float __attribute__((ext_vector_type(4)));
  const uint32_t a_words[2] = {a[0], a[1]}, b_words[2] = {b[0], b[1]};
  const Sums sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Words, a_words),
                                                              __builtin_bit_cast(Words, b_words),
                                                              Sums{0, 0, 0, 0}, 0, 0, 0);
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
}
__device__ __forceinline__ void Mfma16F16(float (&d)[4], const uint32_t (&a)[2],
                                          const uint32_t (&b)[2]) {
  using Words = _Float16 __attribute__((ext_vector_type(4)));
  using Sums = float __attribute__((ext_vector_type(4)));
  const uint32_t a_words[2] = {a[0], a[1]}, b_words[2] = {b[0], b[1]};
  const Sums sums = __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Words, a_words),
                                                          __builtin_bit_cast(Words, b_words),
                                                          Sums{0, 0, 0, 0}, 0, 0, 0);
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
}
// Whether Mfma32E4m3 may be called. On gfx942, FP8 is a different format.
__device__ __forceinline__ constexpr bool HasMfmaE4m3() {
#ifdef __gfx950__
  return true;
#else
  return false;
#endif
}
// Like Mfma16Bf16, with a [16, 32] and b [32, 16] E4M3: a lane has columns (rows) 8q..8q+7, the
// first in the lowest byte. (CDNA 4 ISA, V_MFMA_F32_16X16X32_FP8_FP8.)
__device__ __forceinline__ void Mfma32E4m3([[maybe_unused]] float (&d)[4],
                                           [[maybe_unused]] const uint32_t (&a)[2],
                                           [[maybe_unused]] const uint32_t (&b)[2]) {
#ifdef __gfx950__
  using Sums = float __attribute__((ext_vector_type(4)));
  const auto both = [](const uint32_t(&words)[2]) {
    return static_cast<long>(words[0] | static_cast<uint64_t>(words[1]) << 32);
  };
  const Sums sums =
      __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(both(a), both(b), Sums{0, 0, 0, 0}, 0, 0, 0);
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
#else
  __builtin_trap();
#endif
}

// Whether MfmaScaled128E2m1 may be called.
__device__ __forceinline__ constexpr bool HasMfmaScaled() {
  return HasMfmaE4m3();
}
// The same with a [16, 128] and b [128, 16] E2M1, and the scales of groups of 32 columns (rows): a
// lane has columns (rows) 32q..32q+31, the first in the lowest bits, and the E8M0 scale of these
// numbers in the lowest byte of its scale. (CDNA 4 ISA, V_MFMA_SCALE_F32_16X16X128_F8F6F4, with
// format 4 and op_sel 0 for both operands. "Matrix Core Programming on AMD CDNA 3 and CDNA 4
// architecture", rocm.blogs.amd.com, shows the same order of FP4 numbers for 32X32X64, where FP8
// numbers have another.)
__device__ __forceinline__ void MfmaScaled128E2m1([[maybe_unused]] float (&d)[4],
                                                  [[maybe_unused]] const uint32_t (&a)[4],
                                                  [[maybe_unused]] const uint32_t (&b)[4],
                                                  [[maybe_unused]] uint32_t a_scale,
                                                  [[maybe_unused]] uint32_t b_scale) {
#ifdef __gfx950__
  using Codes = int __attribute__((ext_vector_type(8)));
  using Sums = float __attribute__((ext_vector_type(4)));
  constexpr int kE2m1 = 4;
  const auto codes = [](const uint32_t(&words)[4]) {
    return Codes{static_cast<int>(words[0]),
                 static_cast<int>(words[1]),
                 static_cast<int>(words[2]),
                 static_cast<int>(words[3]),
                 0,
                 0,
                 0,
                 0};
  };
  const Sums sums = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      codes(a), codes(b), Sums{0, 0, 0, 0}, kE2m1, kE2m1, 0, static_cast<int>(a_scale), 0,
      static_cast<int>(b_scale));
  for (int i = 0; i < 4; ++i) d[i] = sums[i];
#else
  __builtin_trap();
#endif
}

__device__ __forceinline__ float F16ToFloat(uint32_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(bits)));
}
__device__ __forceinline__ uint32_t F16Bits(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}

}  // namespace machine
}  // namespace sluice::hip
