// The language of kernels: CUDA C++, and its replacement on the CPU.
//
// A kernel's file (*.cu) is compiled twice: by nvcc for GPUs, and by the host's compiler with
// emulator.h, which runs the threads of a block as fibers. So every kernel's arithmetic, indexing
// and synchronization is tested without a GPU. Rules that keep both alike:
//   - Kernels are `__global__ void` with one argument, a struct of plain members, and are launched
//     by Launch<kernel>(). Everything is in namespace sluice::SLUICE_DEVICE_NAMESPACE.
//   - Shared memory is only SharedMemory(), of the size given to the launch, never `__shared__`.
//     Its contents are undefined when a block begins.
//   - Shuffles, and functions whose comment requires it, are called by all lanes of a warp.
//     Blocks have whole warps.
//   - Instructions beyond CUDA C++, and inline assembly, are only here and in warpgroup_code.h.
//   - Includes: this file, device_kernels.h, and C headers.
#pragma once

#include <stdint.h>

#include "device/stream_handle.h"

#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)
#ifndef SLUICE_EMULATED_HIP
#include "device/hip_launch.h"
#endif
#include "kernels/cuda/hip_code.h"
#define SLUICE_DEVICE_NAMESPACE hip
#ifdef SLUICE_EMULATED_HIP
#define SLUICE_UNROLL
#define SLUICE_ROLLED
#define SLUICE_KEPT static thread_local
#else
#define SLUICE_UNROLL _Pragma("unroll")
#define SLUICE_ROLLED _Pragma("unroll 1")
#define SLUICE_KEPT static __device__
#endif
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#include "device/overlapping_launch.h"
#include "device/shared_memory_grant.h"
#define SLUICE_DEVICE_NAMESPACE cuda
#define SLUICE_UNROLL _Pragma("unroll")    // before a loop over arrays held in registers
#define SLUICE_ROLLED _Pragma("unroll 1")  // before a loop that few launches enter
// Before a variable of a device function that keeps its value between launches.
#define SLUICE_KEPT static
#else
#define SLUICE_DEVICE_NAMESPACE emulated
#define SLUICE_UNROLL
#define SLUICE_ROLLED
#define SLUICE_KEPT static thread_local
#include "kernels/cuda/emulator.h"
#endif

namespace sluice::SLUICE_DEVICE_NAMESPACE {

struct LaunchShape {
  unsigned grid_x = 1;
  unsigned grid_y = 1;
  unsigned threads = 32;  // threads per block; a multiple of 32, at most 1024
  unsigned grid_z = 1;
  unsigned shared_bytes = 0;
  // Whether the kernel may begin before the stream's earlier kernels end, if the stream allows it
  // (programmatic dependent launch). REQUIRES: every thread calls AwaitEarlierKernels() before it
  // reads results of earlier kernels, before it writes, and before it ends.
  bool overlaps = false;
};

inline LaunchShape Overlapping(LaunchShape shape) {
  shape.overlaps = true;
  return shape;
}

// The maximum shared memory of a block that every GPU supports, and whether AsyncCopy16 is
// asynchronous.
#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)
constexpr int kMostSharedBytes = 64 * 1024;
constexpr bool kCopiesRunAside = false;
#else
constexpr int kMostSharedBytes = 99 * 1024;
constexpr bool kCopiesRunAside = true;
#endif

#if defined(SLUICE_EMULATED_HIP)

// The program launches kernels through HIP's runtime. Here, kernels are only registered by name for
// the fake HIP runtime.
template <auto kKernel, typename Args>
void Launch(const StreamHandle&, const char*, const LaunchShape&, const Args&) {
  static_cast<void>(emulator::Named<kKernel, Args>::kIsKnown);
}

#elif defined(__HIP__)

template <auto kKernel, typename Args>
void Launch(const StreamHandle& stream, const char* name, const LaunchShape& shape,
            const Args& args) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  const int code =
      LaunchHipKernel({reinterpret_cast<const void*>(kKernel), shape.grid_x, shape.grid_y,
                       shape.grid_z, shape.threads, shape.shared_bytes, stream.native, &args});
  stream.failure->Record(name, code);
}

#elif defined(__CUDACC__)

// Launches `kKernel` on the stream. A failed launch is recorded in the stream, with the kernel's
// name. With an empty grid nothing is launched.
template <auto kKernel, typename Args>
void Launch(const StreamHandle& stream, const char* name, const LaunchShape& shape,
            const Args& args) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  constexpr unsigned kSharedWithoutAsking = 48 * 1024;
  cudaError_t code = cudaSuccess;
  if (shape.shared_bytes > kSharedWithoutAsking) {
    // Shared memory that this thread has already requested, per device. It need not be requested at
    // every launch.
    constexpr int kDevices = 16;
    static thread_local unsigned granted[kDevices] = {};
    int device = 0;
    code = cudaGetDevice(&device);
    const bool is_known = device >= 0 && device < kDevices;
    if (code == cudaSuccess && !(is_known && granted[device] >= shape.shared_bytes)) {
      code = static_cast<cudaError_t>(
          GrantSharedMemory(reinterpret_cast<const void*>(kKernel), device, shape.shared_bytes));
      if (code == cudaSuccess && is_known) granted[device] = shape.shared_bytes;
    }
  }
  if (code == cudaSuccess && shape.overlaps && stream.overlaps) {
    code = static_cast<cudaError_t>(
        LaunchOverlapping({reinterpret_cast<const void*>(kKernel), shape.grid_x, shape.grid_y,
                           shape.grid_z, shape.threads, shape.shared_bytes, stream.native, &args}));
  } else if (code == cudaSuccess) {
    kKernel<<<dim3(shape.grid_x, shape.grid_y, shape.grid_z), shape.threads, shape.shared_bytes,
              static_cast<cudaStream_t>(stream.native)>>>(args);
    code = cudaGetLastError();
  }
  stream.failure->Record(name, static_cast<int>(code));
}

// The block's dynamic shared memory, aligned to 128 bytes.
__device__ __forceinline__ unsigned char* SharedMemory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return memory;
}

__device__ __forceinline__ float FloatFromBits(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ __forceinline__ uint32_t BitsOf(float value) {
  return __float_as_uint(value);
}

// Copies 16 bytes from global to shared memory, both aligned to 16, or writes zeros if !`is_valid`.
// The bytes are visible to this thread after the AsyncWait that covers their AsyncCommit; to other
// threads, after an additional barrier.
__device__ __forceinline__ void AsyncCopy16(void* shared, const void* global, bool is_valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global),
               "r"(bytes)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ __forceinline__ void AsyncCommit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most the last kPending groups of this thread are still in progress.
template <int kPending>
__device__ __forceinline__ void AsyncWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Called by all lanes of a warp. Loads four 8 x 8 matrices of 16-bit elements from shared memory:
// lane l passes the address of row l % 8 (16 bytes, aligned) of matrix l / 8. registers[m] of lane
// l holds elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l / 4 of matrix m.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}
// Called by all lanes of a warp. LoadMatrix4 with each matrix transposed: registers[m] of lane l
// holds rows 2 * (l % 4) and 2 * (l % 4) + 1 of column l / 4.
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&registers)[4],
                                                      const void* shared_row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(address)
               : "memory");
}

// Called by all lanes of a warp. Computes d += a b: a [16, 16] and b [16, 8] BF16, d [16, 8] F32.
// With g = lane / 4, t = lane % 4:
//   a[0]: row g, columns 2t, 2t+1;  a[1]: row g+8;  a[2]: row g, columns 2t+8, 2t+9;  a[3]: row g+8
//   b[0]: rows 2t, 2t+1 of column g;  b[1]: rows 2t+8, 2t+9
//   d[0], d[1]: row g, columns 2t, 2t+1;  d[2], d[3]: row g+8
// The first of two numbers in a register is the low half. (PTX ISA, mma.m16n8k16.)
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Like MmaBf16, with F16 operands.
__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Returns two numbers as F16, rounded to nearest even, the first in the low half. Numbers beyond
// 65504 become infinite.
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Multiplies two pairs of F16 numbers, each product rounded once; subnormal numbers are kept.
__device__ __forceinline__ uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  uint32_t pair;
  asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}

// Returns two F16 numbers as BF16, rounded to nearest even.
__device__ __forceinline__ uint32_t F16x2ToBf16x2(uint32_t pair) {
  asm("{\n"
      "  .reg .b16 first, second;\n"
      "  .reg .f32 first_number, second_number;\n"
      "  mov.b32 {first, second}, %0;\n"
      "  cvt.f32.f16 first_number, first;\n"
      "  cvt.f32.f16 second_number, second;\n"
      "  cvt.rn.bf16x2.f32 %0, second_number, first_number;\n"
      "}\n"
      : "+r"(pair));
  return pair;
}

// The compute capability for which this code is compiled, 90 for 9.0. It is a constant, so that
// branches for other GPUs are removed.
__device__ __forceinline__ constexpr int ComputeCapability() {
#ifdef __CUDA_ARCH__
  return __CUDA_ARCH__ / 10;
#else
  return 0;  // host
#endif
}

// Waits until all kernels that were launched earlier on the stream have ended and their results can
// be read. Returns immediately if this kernel began after them.
__device__ __forceinline__ void AwaitEarlierKernels() {
  if (ComputeCapability() >= 90) asm volatile("griddepcontrol.wait;\n" ::: "memory");
}
// Lets the next kernel on the stream begin, if it overlaps, once every block has called this or
// ended. The next kernel may still read this kernel's results only after AwaitEarlierKernels().
__device__ __forceinline__ void LetLaterKernelsBegin() {
  if (ComputeCapability() >= 90) asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

// E4m3x4ToF16, PackE4m3 and MmaE4m3 (below) by instructions of compute capability 8.9 and later.
namespace instruction {

__device__ __forceinline__ void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  asm("{\n"
      "  .reg .b16 first, second;\n"
      "  mov.b32 {first, second}, %2;\n"
      "  cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "  cvt.rn.f16x2.e4m3x2 %1, second;\n"
      "}\n"
      : "=&r"(low), "=r"(high)
      : "r"(codes));
}

// Loses the sign of NaN.
__device__ __forceinline__ uint32_t PackE4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ void MmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace instruction

// Returns `value`, hidden from the compiler. So the values that a loop computes from it are
// computed inside the loop, and are not kept in registers across the loop.
__device__ __forceinline__ int KeptInLoop(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Returns a * b + c for pairs of BF16 numbers, each result rounded once; subnormal numbers are
// kept.
__device__ __forceinline__ uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

#else  // the emulator defines the same functions; see emulator.h

template <auto kKernel, typename Args>
void Launch(const StreamHandle& stream, const char* name, const LaunchShape& shape,
            const Args& args) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  emulator::Enqueue(stream,
                    {name,
                     {shape.grid_x, shape.grid_y, shape.grid_z, shape.threads, shape.shared_bytes},
                     reinterpret_cast<const void*>(kKernel),
                     &args,
                     sizeof(args),
                     emulator::MemberBytes<Args>(),
                     shape.overlaps},
                    [args] { kKernel(args); });
}

inline int KeptInLoop(int value) {
  return value;
}

// Emulated kernels begin one after another.
inline void AwaitEarlierKernels() {}
inline void LetLaterKernelsBegin() {}

using emulator::AsyncCommit;
using emulator::AsyncCopy16;
using emulator::AsyncWait;
using emulator::BitsOf;
using emulator::ComputeCapability;
using emulator::F16x2ToBf16x2;
using emulator::FloatFromBits;
using emulator::FmaBf16x2;
using emulator::LoadMatrix4;
using emulator::LoadMatrix4Transposed;
using emulator::MmaBf16;
using emulator::MmaF16;
using emulator::MultiplyF16x2;
using emulator::PackF16;
using emulator::SharedMemory;
namespace instruction {
using emulator::E4m3x4ToF16;
using emulator::MmaE4m3;
using emulator::PackE4m3;
}  // namespace instruction

#endif

// E4m3x4ToF16, PackE4m3 and MmaE4m3 without the instructions of compute capability 8.9.
namespace arithmetic {

__device__ __forceinline__ void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  SLUICE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const uint32_t two = half == 0 ? codes & 0xFFFFu : codes >> 16;
    const uint32_t bytes = (two & 0xFFu) | (two & 0xFF00u) << 8;
    // Raises the exponent's bias from 7 to 15 by a product, which is also exact for subnormal
    // codes.
    const uint32_t raised = (bytes & 0x00800080u) << 8 | (bytes & 0x007F007Fu) << 7;
    const uint32_t pair = MultiplyF16x2(raised, 0x5C005C00u);
    // The sum reaches the highest bit only for bytes with magnitude 0x7F (NaN).
    const uint32_t nan = ((bytes & 0x007F007Fu) + 0x00010001u) & 0x00800080u;
    (half == 0 ? low : high) = pair | (nan >> 7) * 0x7FFFu;
  }
}

__device__ __forceinline__ void MmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  uint32_t low_a[4], high_a[4], low_b[2], high_b[2];
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) instruction::E4m3x4ToF16(a[i], low_a[i], high_a[i]);
  SLUICE_UNROLL
  for (int i = 0; i < 2; ++i) instruction::E4m3x4ToF16(b[i], low_b[i], high_b[i]);
  // The columns of a may be in any order, as long as the rows of b have the same order.
  MmaF16(d, {low_a[0], low_a[1], high_a[0], high_a[1]}, {low_b[0], high_b[0]});
  MmaF16(d, {low_a[2], low_a[3], high_a[2], high_a[3]}, {low_b[1], high_b[1]});
}

__device__ __forceinline__ uint32_t FloatToE4m3(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kMax = 0x43E00000u;  // 448
  const uint32_t clamped = magnitude > kMax ? kMax : magnitude;
  const uint32_t normal = ((clamped + 0x7FFFFu + (clamped >> 20 & 1u)) >> 20) - (120u << 3);
  const uint32_t subnormal = BitsOf(FloatFromBits(clamped) + 0x1p14f) - 0x46800000u;
  const uint32_t code = clamped < 0x3C800000u ? subnormal : normal;
  return (magnitude > 0x7F800000u ? 0x7Fu : code) | sign;
}
__device__ __forceinline__ uint32_t PackE4m3(float low, float high) {
  return FloatToE4m3(low) | FloatToE4m3(high) << 8;
}

}  // namespace arithmetic

#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)
// AMD's instruction encodes a different FP8 format.
namespace instruction {
using arithmetic::PackE4m3;
}  // namespace instruction
#endif

#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)
// Kernels never overlap on these devices.
__device__ __forceinline__ void AwaitEarlierKernels() {}
__device__ __forceinline__ void LetLaterKernelsBegin() {}
#endif

// For kernels that overlap others and read nothing before they wait.
__device__ __forceinline__ void BeginOverlapping() {
  LetLaterKernelsBegin();
  AwaitEarlierKernels();
}

// The compute capability selects the branches of these functions. The emulator uses the branches of
// 9.0, or of the capability that a test sets.

// Converts four E4M3 codes to F16, exactly: the two lower bytes to `low`, the first of them in its
// low half. NaN stays NaN.
__device__ __forceinline__ void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high) {
  if (ComputeCapability() >= 89)
    instruction::E4m3x4ToF16(codes, low, high);
  else
    arithmetic::E4m3x4ToF16(codes, low, high);
}

// Converts four E4M3 codes to BF16, exactly, in the same order.
__device__ __forceinline__ void E4m3x4ToBf16(uint32_t codes, uint32_t& low, uint32_t& high) {
  E4m3x4ToF16(codes, low, high);
  low = F16x2ToBf16x2(low);
  high = F16x2ToBf16x2(high);
}

// Returns two numbers as E4M3 codes, the first in the low byte. Rounds to nearest even; numbers
// beyond +-448 become +-448; NaN stays NaN, with its sign.
__device__ __forceinline__ uint32_t PackE4m3(float low, float high) {
  if (ComputeCapability() < 89) return arithmetic::PackE4m3(low, high);
  // The instruction loses only the sign of NaN, which is added here.
  return instruction::PackE4m3(low, high) | (BitsOf(low) >> 24 & 0x80u) |
         (BitsOf(high) >> 16 & 0x8000u);
}

// Whether MmaE4m3 may be called: compute capability 8.9 and later. On the host, DeviceInfo has the
// same information.
__device__ __forceinline__ bool HasE4m3Mma() {
  return ComputeCapability() >= 89;
}

// Called by all lanes of a warp. Computes d += a b: a [16, 32] and b [32, 8] E4M3, d [16, 8] F32.
// With g = lane / 4, t = lane % 4:
//   a[0]: row g, columns 4t..4t+3;  a[1]: row g+8
//   a[2]: row g, columns 4t+16..4t+19;  a[3]: row g+8
//   b[0]: rows 4t..4t+3 of column g;  b[1]: rows 4t+16..4t+19
//   d as in MmaBf16.
// The first of four numbers is the lowest byte. (PTX ISA, mma.m16n8k32.) REQUIRES: HasE4m3Mma().
__device__ __forceinline__ void MmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  // On 9.0 to 11.0 the compiler emulates the instruction by products of F16. Each sum of 32
  // products starts at zero and is added afterwards. Direct products of F16 are cheaper, because
  // they accumulate.
  if (ComputeCapability() >= 90 && ComputeCapability() < 120)
    arithmetic::MmaE4m3(d, a, b);
  else
    instruction::MmaE4m3(d, a, b);
}

// MmaBf16, MmaF16 and MmaE4m3 for a pair of warps: called by warps 2i and 2i + 1 of a block
// together. An AMD GPU multiplies the operands of both warps by one instruction.
#if defined(__HIP__) || defined(SLUICE_EMULATED_HIP)
__device__ __forceinline__ void PairMmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  if (machine::HasMfmaE4m3()) return WaveMmaE4m3(d, a, b);
  uint32_t low_a[4], high_a[4], low_b[2], high_b[2];
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) instruction::E4m3x4ToF16(a[i], low_a[i], high_a[i]);
  SLUICE_UNROLL
  for (int i = 0; i < 2; ++i) instruction::E4m3x4ToF16(b[i], low_b[i], high_b[i]);
  PairMmaF16(d, {low_a[0], low_a[1], high_a[0], high_a[1]}, {low_b[0], high_b[0]});
  PairMmaF16(d, {low_a[2], low_a[3], high_a[2], high_a[3]}, {low_b[1], high_b[1]});
}
constexpr bool kWarpsGoInPairs = true;
#else
constexpr bool kWarpsGoInPairs = false;
__device__ __forceinline__ void PairMmaF16(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  MmaF16(d, a, b);
}
__device__ __forceinline__ void PairMmaBf16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  MmaBf16(d, a, b);
}
__device__ __forceinline__ void PairMmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  MmaE4m3(d, a, b);
}
#endif

// Conversions between number formats, for device code. The formulas are those of tensor/bfloat16.h
// and tensor/float8.h.

__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) {
  return FloatFromBits(static_cast<uint32_t>(bits) << 16);
}
// Rounds to nearest even; NaN stays NaN.
__device__ __forceinline__ uint16_t FloatToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  return FloatToBf16(low) | static_cast<uint32_t>(FloatToBf16(high)) << 16;
}

// Exact; NaN for 0x7F and 0xFF.
__device__ __forceinline__ float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7Fu;
  // Raises the exponent's bias from 7 to 127 by a product, which is also exact for subnormal codes.
  const uint32_t bits = BitsOf(FloatFromBits(magnitude << 20) * 0x1p120f);
  return FloatFromBits((magnitude == 0x7F ? 0x7FC00000u : bits) | sign);
}
// Rounds to nearest even; beyond +-448 becomes +-448; NaN stays NaN, with its sign.
__device__ __forceinline__ uint8_t FloatToE4m3(float value) {
  return static_cast<uint8_t>(PackE4m3(value, 0));
}
// The low 4 bits of `code` are the sign, 2 bits of exponent and 1 bit of mantissa.
__device__ __forceinline__ float E2m1ToFloat(uint32_t code) {
  const uint32_t sign = (code & 8u) << 28;
  // Raises the exponent's bias from 1 to 127.
  return FloatFromBits(BitsOf(FloatFromBits((code & 7u) << 22) * 0x1p126f) | sign);
}
// 2^(byte - 127); NaN for 0xFF.
__device__ __forceinline__ float E8m0ToFloat(uint8_t byte) {
  if (byte == 0xFF) return FloatFromBits(0x7FC00000u);
  return FloatFromBits(byte == 0 ? 0x00400000u : static_cast<uint32_t>(byte) << 23);
}

// Called by all lanes of a warp. Returns the sum (or the maximum) of all lanes' values, to every
// lane. Always summed in the same order.
__device__ __forceinline__ float WarpSum(float value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xFFFFFFFFu, value, mask);
  return value;
}
__device__ __forceinline__ float WarpMax(float value) {
  for (int mask = 16; mask > 0; mask >>= 1)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, mask));
  return value;
}

}  // namespace sluice::SLUICE_DEVICE_NAMESPACE
