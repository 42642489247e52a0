// Runs CUDA kernels on the CPU: for tests, and for `--device emulated`.
//
// The threads of a block are fibers that switch at barriers and at warp-wide functions. The
// emulator is designed to expose mistakes. Shared memory is filled with NaNs when a block begins
// and guarded after its end. Launches run only when a caller waits for the stream. The order of
// blocks and threads can be chosen; a kernel whose result changes with it lacks a barrier.
// Asynchronous copies complete only when a thread waits for them or, in seeded orders, at any
// earlier time. In seeded orders, several blocks run concurrently. Aborts the program, and names
// the kernel, if not all threads of a block reach a barrier, if a vector access is misaligned, or
// if a device would refuse the launch. Thread safety: each host thread has its own emulator.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <array>
#include <functional>

#include "device/stream_handle.h"

// Keywords of CUDA C++.
// NOLINTBEGIN
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::sluice::emulator::Current().thread)
#define blockIdx (::sluice::emulator::Current().block)
#define blockDim (::sluice::emulator::Current().threads)
#define gridDim (::sluice::emulator::Current().grid)
// NOLINTEND

namespace sluice::emulator {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Indices and sizes for the running thread.
struct Position {
  Index3 thread, block, threads, grid;
};
Position& Current();

struct Grid {
  unsigned x, y, z;
  unsigned threads;
  unsigned shared_bytes;
};

struct KernelLaunch {
  const char* name;
  Grid grid;
  const void* kernel;  // the function
  const void* args;    // the kernel's argument, one struct
  size_t args_bytes;
  const unsigned char* member_bytes;  // MemberBytes of the arguments
  bool overlaps = false;              // LaunchShape::overlaps
};

// For each byte of a launch's arguments: 0xFF if it belongs to a member, 0 for padding, whose
// values are undefined. GCC 12 also reports some bytes of arrays of structs as padding. Null with
// compilers that do not support it.
#if __has_builtin(__builtin_clear_padding)
template <typename Args>
const unsigned char* MemberBytes() {
  static const auto kBytes = [] {
    Args args = {};
    memset(static_cast<void*>(&args), 0xFF, sizeof(args));
    __builtin_clear_padding(&args);
    std::array<unsigned char, sizeof(Args)> bytes;
    memcpy(bytes.data(), &args, sizeof(args));
    return bytes;
  }();
  return kBytes.data();
}
#else
template <typename Args>
const unsigned char* MemberBytes() {
  return nullptr;
}
#endif

// Adds a launch to the stream's queue (an EmulatedQueue). `args` is copied.
void Enqueue(const StreamHandle& stream, const KernelLaunch& launch,
             std::function<void()> thread_body);

// The functions below apply to the calling host thread.

// The order of a grid's blocks and of a block's threads. kForward, kReverse: block by block; in a
// block, each warp runs from barrier to barrier; in a warp, each lane runs from one warp-wide
// function to the next. kSeeded: several blocks run concurrently; blocks, warps and lanes are
// chosen at random, also at atomics, fences and waits for copies, which complete at random times.
// Equal seeds give equal orders.
enum class Order { kForward, kReverse, kSeeded };
void SetOrder(Order order, uint64_t seed = 0);

// Watches a piece of global memory of a few kilobytes: stores there become visible to other blocks
// only by fences, as emulated_global.h describes. 0 bytes: stops watching. For seeded orders.
void WatchGlobal(void* memory, size_t bytes);

// Reports data races to ThreadSanitizer, whose options decide whether it ends the program; see
// emulated_races.h. Returns false in builds without it. For seeded orders.
bool FindRaces(bool finds);

// For checking that tests fail: leaves one barrier out of the kernel that is launched with this
// name. It is the `number`-th barrier that a thread reaches, counted from 0, in every block. "":
// none.
void LeaveOutBarrier(const char* kernel, int number = 0);
// Returns whether any launch since LeaveOutBarrier has reached the barrier that is left out.
bool HasLeftOutBarrier();

// Compute capability of the emulated device, which decides the branches of kernels: 80, 89, 90 or
// 100. Default: 90, where E4M3 products are emulated by F16 products.
void SetComputeCapability(int capability);
int ComputeCapability();

// Runs kernels with `runner` instead of the emulator. Empty: uses the emulator.
void SetRunner(std::function<void(const KernelLaunch&)> runner);

void BlockBarrier();
void WarpBarrier();
void Fence();
// The scope of an atomic operation of this thread.
class Atomic {
 public:
  Atomic(const void* address, size_t bytes);
  ~Atomic();
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

 private:
  const void* address_;
  size_t bytes_;
};
// Call before a read that bypasses the multiprocessor's cache.
void ReadPastCache(const void* address, size_t bytes);
unsigned char* SharedMemory();

// Every lane of the warp passes `bytes` bytes and waits for all others. Then `combine` runs once:
// it reads the inputs of all 32 lanes (`bytes` bytes each) and writes the outputs of all lanes.
// Each lane receives its own output.
using Combine = void (*)(const unsigned char* inputs, unsigned char* outputs);
void WarpCollective(const char* what, const void* input, int input_bytes, void* output,
                    int output_bytes, Combine combine);
// Gives every lane the values of all lanes, in the order of the lanes.
void WarpGather(const void* input, int bytes, void* outputs);
// Like the functions above, for the 64 lanes of an AMD GPU's wave, which consists of two warps.
void WaveCollective(const void* input, int input_bytes, void* output, int output_bytes,
                    Combine combine);
void WaveGather(const void* input, int bytes, void* outputs);
// Checks the address of the 16 bytes that this thread passes to a warp's matrix load.
void CheckMatrixRow(const void* shared_row);

void AsyncCopy16(void* shared, const void* global, bool is_valid);
void AsyncCommit();
void AsyncWaitGroups(int pending);
template <int kPending>
void AsyncWait() {
  AsyncWaitGroups(kPending);
}
// The instructions of warpgroup_code.h.
uint32_t SharedAddress(const void* shared);
void InitMbarrier(uint32_t mbarrier, int count);
inline void FenceMbarriers() {}
void ArriveForBytes(uint32_t mbarrier, int bytes);
void Arrive(uint32_t mbarrier);
void AwaitPhase(uint32_t mbarrier, int parity);
void CopyTile(uint32_t shared, const void* map, int column, int row, uint32_t mbarrier);
inline void FenceProducts() {}
void CommitProducts();
void AwaitProductGroups(int pending);
void MultiplyGroup(float* d, int columns, uint64_t a, uint64_t b, bool accumulates);
void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row);
void LoadMatrix4Transposed(uint32_t (&registers)[4], const void* shared_row);
void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MmaE4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
uint32_t PackF16(float low, float high);
uint32_t MultiplyF16x2(uint32_t a, uint32_t b);
uint32_t F16x2ToBf16x2(uint32_t pair);
void E4m3x4ToF16(uint32_t codes, uint32_t& low, uint32_t& high);
uint32_t PackE4m3(float low, float high);

// Aborts the program if a vector of kBytes is read or written at an address that is not a multiple
// of kBytes.
[[noreturn]] void EndOfMisalignedVector();
template <unsigned kBytes>
void CheckVector(const void* to, const void* from) {
  auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  // Hides the address from the compiler. Otherwise, it would assume the alignment that is checked
  // here.
  asm volatile("" : "+r"(bits));
  if (bits % kBytes != 0) EndOfMisalignedVector();
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounds twice, to F32 and to BF16. Kernels use it only where the result is exact.
inline uint32_t FmaBf16x2(uint32_t a, uint32_t b, uint32_t c) {
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

}  // namespace sluice::emulator

// CUDA's own functions that kernels use.
namespace sluice::emulated {
// NOLINTBEGIN
inline void __syncthreads() {
  ::sluice::emulator::BlockBarrier();
}
inline void __syncwarp() {
  ::sluice::emulator::WarpBarrier();
}
template <typename T>
T __shfl_sync(unsigned /*mask*/, T value, int lane) {
  T all[32];
  ::sluice::emulator::WarpGather(&value, sizeof(T), all);
  return all[lane & 31];
}
template <typename T>
T __shfl_xor_sync(unsigned /*mask*/, T value, int lane_mask) {
  T all[32];
  ::sluice::emulator::WarpGather(&value, sizeof(T), all);
  return all[(threadIdx.x & 31) ^ static_cast<unsigned>(lane_mask)];
}
template <typename T>
T __shfl_up_sync(unsigned /*mask*/, T value, unsigned delta) {
  T all[32];
  ::sluice::emulator::WarpGather(&value, sizeof(T), all);
  const unsigned lane = threadIdx.x & 31;
  return all[lane >= delta ? lane - delta : lane];
}
template <typename T>
T __shfl_down_sync(unsigned /*mask*/, T value, unsigned delta) {
  T all[32];
  ::sluice::emulator::WarpGather(&value, sizeof(T), all);
  const unsigned lane = threadIdx.x & 31;
  return all[lane + delta < 32 ? lane + delta : lane];
}
inline unsigned __ballot_sync(unsigned /*mask*/, int predicate) {
  int all[32];
  ::sluice::emulator::WarpGather(&predicate, sizeof(int), all);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane] != 0) << lane;
  return bits;
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return result;
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
template <typename T>
T atomicAdd(T* address, T value) {
  const ::sluice::emulator::Atomic atomic(address, sizeof(T));
  T old, sum;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    sum = old + value;
  } while (!__atomic_compare_exchange(address, &old, &sum, /*weak=*/true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return old;
}
template <typename T>
T atomicExch(T* address, T value) {
  const ::sluice::emulator::Atomic atomic(address, sizeof(T));
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

// Vectors for wide loads and stores of memory of any type, as in CUDA. Addresses are multiples of
// their size.
struct alignas(8) [[gnu::may_alias]] uint2 {
  uint2() = default;
  uint2(unsigned a, unsigned b) : x(a), y(b) {}
  uint2(const uint2& other) { *this = other; }
  uint2& operator=(const uint2& other) {
    ::sluice::emulator::CheckVector<8>(this, &other);
    x = other.x, y = other.y;
    return *this;
  }
  unsigned x, y;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  uint4() = default;
  uint4(unsigned a, unsigned b, unsigned c, unsigned d) : x(a), y(b), z(c), w(d) {}
  uint4(const uint4& other) { *this = other; }
  uint4& operator=(const uint4& other) {
    ::sluice::emulator::CheckVector<16>(this, &other);
    x = other.x, y = other.y, z = other.z, w = other.w;
    return *this;
  }
  unsigned x, y, z, w;
};
struct alignas(8) [[gnu::may_alias]] float2 {
  float2() = default;
  float2(float a, float b) : x(a), y(b) {}
  float2(const float2& other) { *this = other; }
  float2& operator=(const float2& other) {
    ::sluice::emulator::CheckVector<8>(this, &other);
    x = other.x, y = other.y;
    return *this;
  }
  float x, y;
};
struct alignas(16) [[gnu::may_alias]] float4 {
  float4() = default;
  float4(float a, float b, float c, float d) : x(a), y(b), z(c), w(d) {}
  float4(const float4& other) { *this = other; }
  float4& operator=(const float4& other) {
    ::sluice::emulator::CheckVector<16>(this, &other);
    x = other.x, y = other.y, z = other.z, w = other.w;
    return *this;
  }
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  ::sluice::emulator::ReadPastCache(address, sizeof(T));
  return *address;
}
inline void __threadfence() {
  ::sluice::emulator::Fence();
}
// NOLINTEND
}  // namespace sluice::emulated
