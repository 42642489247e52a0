// Implements the functions of hip_instructions.h on the CPU, with the emulator: hip_code.h and the
// kernels for AMD GPUs run there unchanged, in waves of 64 lanes. Compiled with
// SLUICE_EMULATED_HIP, for the fake HIP runtime (tests/fake_hip).
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "device/emulated_queue.h"
#include "kernels/cuda/emulator.h"

namespace sluice::emulator {

// A kernel that the fake HIP runtime may launch.
struct KnownKernel {
  const void* function;
  size_t args_bytes;
  void (*run)(const void* args);  // a thread of the block
};
inline std::vector<KnownKernel>& KnownKernels() {
  static std::vector<KnownKernel> kernels;
  return kernels;
}

// Registers a kernel before main, or when its library is opened.
template <auto kKernel, typename Args>
struct Named {
  static const bool kIsKnown;
};
template <auto kKernel, typename Args>
const bool Named<kKernel, Args>::kIsKnown = [] {
  KnownKernels().push_back({reinterpret_cast<const void*>(kKernel), sizeof(Args),
                            [](const void* args) { kKernel(*static_cast<const Args*>(args)); }});
  return true;
}();

// Runs all threads of a launch.
inline void RunKernel(const KnownKernel& kernel, const char* name, const Grid& grid,
                      const void* args) {
  EmulatedQueue queue;
  Enqueue({&queue, nullptr}, {name, grid, kernel.function, args, kernel.args_bytes, nullptr},
          [&kernel, args] { kernel.run(args); });
  queue.RunAll();
}

}  // namespace sluice::emulator

namespace sluice::hip {

using emulator::SharedMemory;

inline int KeptInLoop(int value) {
  return value;
}

namespace machine {

inline void BlockBarrier() {
  emulator::BlockBarrier();
}
inline void HalfBarrier() {
  emulator::WarpBarrier();
}
inline void DeviceFence() {
  emulator::Fence();
}
template <typename T>
T AtomicAdd(T* address, T value) {
  return emulated::atomicAdd(address, value);
}
template <typename T>
T AtomicExchange(T* address, T value) {
  return emulated::atomicExch(address, value);
}
inline float LoadPastCache(const float* address) {
  return emulated::__ldcg(address);
}

inline int Lane() {
  return static_cast<int>(threadIdx.x % 64);
}
template <int kWords>
class EmulatedHalf {
 public:
  explicit EmulatedHalf(const uint32_t (&own)[kWords]) {
    emulator::WarpGather(own, sizeof(own), all_);
  }
  uint32_t From(int from, int i) const {
    if (((from ^ Lane()) & 32) != 0) {
      fprintf(stderr, "lane %d reads lane %d of the wave's other half\n", Lane(), from);
      abort();
    }
    return all_[from & 31][i];
  }

 private:
  uint32_t all_[32][kWords];
};
template <int kWords>
using HalfWords = EmulatedHalf<kWords>;
inline uint64_t Ballot(bool predicate) {
  const uint64_t half = emulated::__ballot_sync(0, predicate);
  // A lane must not read from the other half of the wave.
  return Lane() < 32 ? half | 0xA5A5A5A5ull << 32 : half << 32 | 0xA5A5A5A5u;
}

template <int kWords>
class EmulatedWave {
 public:
  explicit EmulatedWave(const uint32_t (&own)[kWords]) {
    emulator::WaveGather(own, sizeof(own), all_);
  }
  uint32_t From(int from, int i) const { return all_[from][i]; }

 private:
  uint32_t all_[64][kWords];
};
template <int kWords>
using WaveWords = EmulatedWave<kWords>;

inline float F16ToFloat(uint32_t bits);

// Computes d = a b for a wave. kNumber decodes number j of the kPerLane numbers in two registers.
template <int kPerLane, float (*kNumber)(const uint32_t* words, int j)>
void CombineMfma(const unsigned char* inputs, unsigned char* outputs) {
  constexpr int kDepth = 4 * kPerLane;
  float a[16][kDepth], b[kDepth][16];
  for (int lane = 0; lane < 64; ++lane) {
    uint32_t words[4];
    memcpy(words, inputs + lane * sizeof(words), sizeof(words));
    for (int j = 0; j < kPerLane; ++j) {
      const int k = lane / 16 * kPerLane + j;
      a[lane % 16][k] = kNumber(words, j);
      b[k][lane % 16] = kNumber(words + 2, j);
    }
  }
  for (int row = 0; row < 16; ++row) {
    float sums[16] = {};
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < 16; ++column) sums[column] += a[row][k] * b[k][column];
    }
    for (int column = 0; column < 16; ++column) {
      const int lane = row / 4 * 16 + column;
      memcpy(outputs + (lane * 4 + row % 4) * sizeof(float), &sums[column], sizeof(float));
    }
  }
}
template <int kPerLane, float (*kNumber)(const uint32_t* words, int j)>
void EmulateMfma(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  const uint32_t own[4] = {a[0], a[1], b[0], b[1]};
  emulator::WaveCollective(own, sizeof(own), d, sizeof(d), CombineMfma<kPerLane, kNumber>);
}
inline float Bf16Number(const uint32_t* words, int j) {
  return emulator::FloatFromBits(words[j / 2] >> 16 * (j % 2) << 16);
}
inline float F16Number(const uint32_t* words, int j) {
  return F16ToFloat(words[j / 2] >> 16 * (j % 2) & 0xFFFFu);
}
inline float E4m3Number(const uint32_t* words, int j) {
  uint32_t low, high;
  emulator::E4m3x4ToF16(words[j / 4] >> 8 * (j % 4) & 0xFFu, low, high);
  return F16ToFloat(low & 0xFFFFu);
}
inline void Mfma16Bf16(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  EmulateMfma<4, Bf16Number>(d, a, b);
}
inline void Mfma16F16(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  EmulateMfma<4, F16Number>(d, a, b);
}
// Set by the fake HIP runtime for each launch: 94 for gfx942, 95 for gfx950.
inline bool HasMfmaE4m3() {
  return emulator::ComputeCapability() == 95;
}
inline void Mfma32E4m3(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[2]) {
  EmulateMfma<8, E4m3Number>(d, a, b);
}

inline bool HasMfmaScaled() {
  return HasMfmaE4m3();
}
// Computes d = a b for a wave, from each lane's codes of a and of b and the scales of both.
inline void CombineScaledMfma(const unsigned char* inputs, unsigned char* outputs) {
  constexpr int kDepth = 128, kPerLane = 32;
  static constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  // The rows of a, and the columns of b. They would be too large for the stack of an emulated
  // thread.
  static thread_local double numbers[2][16][kDepth];
  for (int lane = 0; lane < 64; ++lane) {
    uint32_t words[10];
    memcpy(words, inputs + lane * sizeof(words), sizeof(words));
    for (int operand = 0; operand < 2; ++operand) {
      const uint32_t byte = words[8 + operand] & 0xFFu;
      const double scale = byte == 0xFF ? NAN : ldexp(1.0, static_cast<int>(byte) - 127);
      for (int j = 0; j < kPerLane; ++j) {
        const uint32_t code = words[4 * operand + j / 8] >> 4 * (j % 8) & 15u;
        const double magnitude = kMagnitudes[code & 7u] * scale;
        numbers[operand][lane % 16][lane / 16 * kPerLane + j] =
            (code & 8u) != 0 ? -magnitude : magnitude;
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      float sum = 0;
      for (int k = 0; k < kDepth; ++k)
        sum += static_cast<float>(numbers[0][row][k] * numbers[1][column][k]);
      const int lane = row / 4 * 16 + column;
      memcpy(outputs + (lane * 4 + row % 4) * sizeof(float), &sum, sizeof(float));
    }
  }
}
inline void MfmaScaled128E2m1(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                              uint32_t a_scale, uint32_t b_scale) {
  if (!HasMfmaScaled()) {
    fprintf(stderr, "this GPU has no matrix instructions with scales\n");
    abort();
  }
  const uint32_t own[10] = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], a_scale, b_scale};
  emulator::WaveCollective(own, sizeof(own), d, sizeof(d), CombineScaledMfma);
}

inline float F16ToFloat(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu;
  // Raises the exponent's bias from 15 to 127.
  const float value = magnitude > 0x7C00u
                          ? emulator::FloatFromBits(0x7F800000u | (magnitude & 0x3FFu) << 13)
                      : magnitude == 0x7C00u ? static_cast<float>(INFINITY)
                                             : emulator::FloatFromBits(magnitude << 13) * 0x1p112f;
  return bits & 0x8000u ? -value : value;
}
inline uint32_t F16Bits(float value) {
  return emulator::PackF16(value, 0) & 0xFFFFu;
}

}  // namespace machine
}  // namespace sluice::hip
