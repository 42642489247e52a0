// The language of kernels for AMD's CDNA GPUs (gfx942: MI300X, MI325X; gfx950: MI350X, MI355X),
// compiled by Clang with -x hip. Replaces HIP's own headers, because their versions in Debian 12
// predate these GPUs.
//
// A wave has 64 lanes. Kernels use warps of 32: the halves of a wave, which are separate in
// shuffles, ballots and the functions of tiles. Both halves run the same instructions, because
// blocks have whole warps, and branches that depend on the warp only surround code that both halves
// execute alike.
//
// Matrix instructions (MFMA) take operands of a whole wave, so they compute what the two warps of a
// wave multiply together (PairMma...). If the halves may take different branches, products are
// computed lane by lane, with operands exchanged by shuffles. FP8 of gfx942 is a different format
// (its bias is larger by one and it has no negative zero), so on gfx942 E4M3 codes are converted to
// F16 by arithmetic.
#pragma once

#include <stdint.h>

#ifdef SLUICE_EMULATED_HIP
#include "kernels/cuda/hip_emulated.h"
#else
#include "kernels/cuda/hip_instructions.h"
#endif
#include "kernels/cuda/hip_math.h"

namespace sluice::hip {

constexpr int kWarp = 32;

// NOLINTBEGIN: names of CUDA
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

__device__ __forceinline__ float sinf(float x) {
  return hip_math::Sine(x);
}
__device__ __forceinline__ float cosf(float x) {
  return hip_math::Cosine(x);
}
__device__ __forceinline__ float log1pf(float x) {
  return hip_math::LogOnePlus(x);
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

__device__ __forceinline__ void __syncthreads() {
  machine::BlockBarrier();
}
__device__ __forceinline__ void __syncwarp() {
  machine::HalfBarrier();
}
__device__ __forceinline__ void __threadfence() {
  machine::DeviceFence();
}
template <typename T>
__device__ __forceinline__ T atomicAdd(T* address, T value) {
  return machine::AtomicAdd(address, value);
}
template <typename T>
__device__ __forceinline__ T atomicExch(T* address, T value) {
  return machine::AtomicExchange(address, value);
}
template <typename T>
__device__ __forceinline__ T __ldg(const T* address) {
  return *address;
}
__device__ __forceinline__ float __ldcg(const float* address) {
  return machine::LoadPastCache(address);
}

// Returns the value of lane `lane` in this lane's half of the wave.
template <typename T>
__device__ __forceinline__ T FromLane(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0);
  const int from = (machine::Lane() & kWarp) | (lane & (kWarp - 1));
  constexpr int kWords = sizeof(T) / 4;
  uint32_t words[kWords];
  __builtin_memcpy(words, &value, sizeof(T));
  const machine::HalfWords<kWords> all(words);
  for (int i = 0; i < kWords; ++i) words[i] = all.From(from, i);
  T result;
  __builtin_memcpy(&result, words, sizeof(T));
  return result;
}
template <typename T>
__device__ __forceinline__ T __shfl_sync(unsigned, T value, int lane) {
  return FromLane(value, lane);
}
template <typename T>
__device__ __forceinline__ T __shfl_xor_sync(unsigned, T value, int mask) {
  return FromLane(value, (machine::Lane() & (kWarp - 1)) ^ mask);
}
template <typename T>
__device__ __forceinline__ T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const int lane = machine::Lane() & (kWarp - 1);
  return FromLane(value, lane >= static_cast<int>(delta) ? lane - static_cast<int>(delta) : lane);
}
template <typename T>
__device__ __forceinline__ T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const int lane = machine::Lane() & (kWarp - 1);
  const int from = lane + static_cast<int>(delta);
  return FromLane(value, from < kWarp ? from : lane);
}
__device__ __forceinline__ unsigned __ballot_sync(unsigned, int predicate) {
  const uint64_t wave = machine::Ballot(predicate != 0);
  return static_cast<unsigned>(machine::Lane() < kWarp ? wave : wave >> kWarp);
}
// NOLINTEND

__device__ __forceinline__ float FloatFromBits(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
__device__ __forceinline__ uint32_t BitsOf(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
// gfx942 copies at most 4 bytes at a time to shared memory without using registers (gfx950: 16). So
// copies are synchronous here.
__device__ __forceinline__ void AsyncCopy16(void* shared, const void* global, bool is_valid) {
  *static_cast<uint4*>(shared) = is_valid ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
}
__device__ __forceinline__ void AsyncCommit() {}
template <int kPending>
__device__ __forceinline__ void AsyncWait() {}

// The addresses that the lanes in this half of the wave pass to the constructor.
class HalfAddresses {
 public:
  __device__ __forceinline__ explicit HalfAddresses(const void* own)
      : words_({static_cast<uint32_t>(reinterpret_cast<uint64_t>(own)),
                static_cast<uint32_t>(reinterpret_cast<uint64_t>(own) >> 32)}) {}
  __device__ __forceinline__ uint64_t From(int lane) const {
    const int from = (machine::Lane() & kWarp) | lane;
    return words_.From(from, 0) | static_cast<uint64_t>(words_.From(from, 1)) << 32;
  }

 private:
  machine::HalfWords<2> words_;
};

// Contracts: device_code.h.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&registers)[4], const void* shared_row) {
  const int lane = machine::Lane() & (kWarp - 1);
  const HalfAddresses rows(shared_row);
  for (int m = 0; m < 4; ++m) {
    const uint64_t row = rows.From(m * 8 + lane / 4);
    registers[m] = *reinterpret_cast<const uint32_t*>(row + static_cast<unsigned>(lane % 4) * 4);
  }
}
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&registers)[4],
                                                      const void* shared_row) {
  const int lane = machine::Lane() & (kWarp - 1);
  const HalfAddresses rows(shared_row);
  for (int m = 0; m < 4; ++m) {
    uint32_t pair[2];
    for (int i = 0; i < 2; ++i) {
      const uint64_t row = rows.From(m * 8 + 2 * (lane % 4) + i);
      pair[i] = *reinterpret_cast<const uint16_t*>(row + static_cast<unsigned>(lane / 4) * 2);
    }
    registers[m] = pair[0] | pair[1] << 16;
  }
}

template <typename Number>
__device__ __forceinline__ void MultiplyTiles(float (&d)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2], const Number& number) {
  const int lane = machine::Lane() & (kWarp - 1), g = lane / 4, t = lane % 4;
  const int first = machine::Lane() & kWarp;  // first lane of this half
  const machine::HalfWords<6> operands({a[0], a[1], a[2], a[3], b[0], b[1]});
  for (int pair = 0; pair < 8; ++pair) {  // columns 2 * pair and 2 * pair + 1 of a, rows of b
    const int from = first + pair % 4, high = pair / 4;
    const uint32_t rows[2] = {operands.From(from + g * 4, 2 * high),
                              operands.From(from + g * 4, 2 * high + 1)};
    for (int column = 0; column < 2; ++column) {
      const uint32_t two = operands.From(from + (2 * t + column) * 4, 4 + high);
      for (int half = 0; half < 2; ++half) {
        float& sum = d[2 * half + column];
        sum = fmaf(number(rows[half] & 0xFFFFu), number(two & 0xFFFFu), sum);
        sum = fmaf(number(rows[half] >> 16), number(two >> 16), sum);
      }
    }
  }
}
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  MultiplyTiles(d, a, b, [](uint32_t bits) { return FloatFromBits(bits << 16); });
}
__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  MultiplyTiles(d, a, b, [](uint32_t bits) { return machine::F16ToFloat(bits); });
}

// MmaBf16, MmaF16 and MmaE4m3 by whole waves: both halves call them together, each with its own
// operands. `multiply`: the function of machine:: that multiplies [16, k] by [k, 16]. The matrix
// instruction receives columns of a (rows of b) in the order in which the halves hold them: quarter
// q of the wave has the columns of all lanes with t = q, first those of the lower registers, then
// those of the higher ones.
template <typename Multiply>
__device__ __forceinline__ void MultiplyByWave(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2], const Multiply& multiply) {
  const int lane = machine::Lane(), i = lane % 16, quarter = lane / 16;
  const machine::WaveWords<6> operands({a[0], a[1], a[2], a[3], b[0], b[1]});
  // Eight columns for each half.
  const int b_from = i / 8 * kWarp + i % 8 * 4 + quarter;
  const uint32_t columns[2] = {operands.From(b_from, 4), operands.From(b_from, 5)};
  // Row i of the instruction is row g or, if `is_lower`, row g + 8 of a half, with g = 2 * (i / 4)
  // + i % 2. So the first two results of a lane are rows 2q and 2q+1, and the others are the rows 8
  // below.
  const int a_from = (i / 4 * 2 + i % 2) * 4 + quarter;
  const bool is_lower = i / 2 % 2 != 0;
  float results[2][4];
  for (int half = 0; half < 2; ++half) {
    const int from = half * kWarp + a_from;
    const uint32_t upper[2] = {operands.From(from, 0), operands.From(from, 2)};
    const uint32_t lower[2] = {operands.From(from, 1), operands.From(from, 3)};
    multiply(results[half], {is_lower ? lower[0] : upper[0], is_lower ? lower[1] : upper[1]},
             columns);
  }
  // The columns of the other half's b are not used.
  uint32_t own[4];
  for (int r = 0; r < 4; ++r) own[r] = BitsOf(i < 8 ? results[0][r] : results[1][r]);
  const machine::WaveWords<4> all(own);
  const int g = lane % kWarp / 4, t = lane % 4;
  for (int column = 0; column < 2; ++column) {
    const int from = g / 2 * 16 + lane / kWarp * 8 + 2 * t + column;
    for (int below = 0; below < 2; ++below) {
      const uint32_t even = all.From(from, 2 * below);
      const uint32_t odd = all.From(from, 2 * below + 1);
      d[2 * below + column] += FloatFromBits(g % 2 == 0 ? even : odd);
    }
  }
}
__device__ __forceinline__ void PairMmaBf16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  MultiplyByWave(d, a, b,
                 [](float(&sums)[4], const uint32_t(&rows)[2], const uint32_t(&columns)[2]) {
                   machine::Mfma16Bf16(sums, rows, columns);
                 });
}
__device__ __forceinline__ void PairMmaF16(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  MultiplyByWave(d, a, b,
                 [](float(&sums)[4], const uint32_t(&rows)[2], const uint32_t(&columns)[2]) {
                   machine::Mfma16F16(sums, rows, columns);
                 });
}
// REQUIRES: machine::HasMfmaE4m3().
__device__ __forceinline__ void WaveMmaE4m3(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  MultiplyByWave(d, a, b,
                 [](float(&sums)[4], const uint32_t(&rows)[2], const uint32_t(&columns)[2]) {
                   machine::Mfma32E4m3(sums, rows, columns);
                 });
}
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  return machine::F16Bits(low) | machine::F16Bits(high) << 16;
}
// Raises the exponent's bias from 7 to 15 by a product, which is also exact for subnormal codes.
__device__ __forceinline__ uint32_t E4m3ToF16(uint32_t code) {
  const uint32_t raised = (code & 0x80u) << 8 | (code & 0x7Fu) << 7;
  return (code & 0x7Fu) == 0x7F ? raised | 0x7FFFu
                                : machine::F16Bits(machine::F16ToFloat(raised) * 256.0f);
}
__device__ __forceinline__ uint32_t HighHalves(float low, float high) {
  return BitsOf(low) >> 16 | (BitsOf(high) & 0xFFFF0000u);
}
// Exact if the F16 numbers represent E4M3 codes.
__device__ __forceinline__ uint32_t F16x2ToBf16x2(uint32_t pair) {
  return HighHalves(machine::F16ToFloat(pair & 0xFFFFu), machine::F16ToFloat(pair >> 16));
}
__device__ __forceinline__ uint32_t MultiplyF16x2(uint32_t a, uint32_t b) {
  return PackF16(machine::F16ToFloat(a & 0xFFFFu) * machine::F16ToFloat(b & 0xFFFFu),
                 machine::F16ToFloat(a >> 16) * machine::F16ToFloat(b >> 16));
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
// Rounds twice, to F32 and to BF16. Kernels use it only where the result is exact.
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
