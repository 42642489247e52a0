#include "kernels/cuda/emulator.h"

#include <vector>

#include <gmock/gmock.h>

#include "device/emulated_queue.h"
#include "kernels/cuda/device_code.h"
#include "kernels/kernel_testing.h"
#include "tensor/float8.h"

namespace sluice::emulated {
namespace {

using testing::ElementsAre;

// Runs what was launched.
struct Stream {
  EmulatedQueue queue;
  LaunchFailure failure;
  StreamHandle handle{&queue, &failure};
};

struct ReverseArgs {
  int* values;
};

// Turns the numbers of a block round, through shared memory.
void Reverse(ReverseArgs args) {
  auto* shared = reinterpret_cast<int*>(SharedMemory());
  int* values = args.values + blockIdx.x * blockDim.x;
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Emulator, RunsBlocksWithBarriersWhenTheQueueIsWaitedFor) {
  for (const auto order : {emulator::Order::kForward, emulator::Order::kReverse}) {
    emulator::SetOrder(order);
    std::vector<int> values(192);
    for (int i = 0; i < 192; ++i) values[static_cast<size_t>(i)] = i;
    Stream stream;
    Launch<Reverse>(stream.handle, "reverse",
                    {.grid_x = 2, .threads = 96, .shared_bytes = 96 * sizeof(int)},
                    ReverseArgs{values.data()});
    EXPECT_EQ(values[0], 0);
    stream.queue.RunAll();
    EXPECT_EQ(values[0], 95);
    EXPECT_EQ(values[95], 0);
    EXPECT_EQ(values[96], 191);
  }
  emulator::SetOrder(emulator::Order::kForward);
}

struct MmaArgs {
  const float* a;  // [16, depth]
  const float* b;  // [depth, 8]
  float* d;        // [16, 8]
};

template <int kPerRegister, bool kIsF16>
uint32_t PackNumbers(const float (&values)[kPerRegister]) {
  if constexpr (kIsF16) return PackF16(values[0], values[1]);
  uint32_t bits = 0;
  for (int i = 0; i < kPerRegister; ++i) {
    const uint32_t code = kPerRegister == 2 ? FloatToBf16(values[i]) : FloatToE4m3(values[i]);
    bits |= code << (32 / kPerRegister * i);
  }
  return bits;
}

template <int kPerRegister, bool kIsF16>
void MultiplyKernel(MmaArgs args) {
  constexpr int kDepth = 8 * kPerRegister;
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  uint32_t a[4], b[2];
  float d[4] = {0, 0, 0, 0};
  for (int r = 0; r < 4; ++r) {
    float values[kPerRegister];
    for (int i = 0; i < kPerRegister; ++i)
      values[i] = args.a[(g + r % 2 * 8) * kDepth + kPerRegister * t + i + r / 2 * kDepth / 2];
    a[r] = PackNumbers<kPerRegister, kIsF16>(values);
  }
  for (int r = 0; r < 2; ++r) {
    float values[kPerRegister];
    for (int i = 0; i < kPerRegister; ++i)
      values[i] = args.b[(kPerRegister * t + i + r * kDepth / 2) * 8 + g];
    b[r] = PackNumbers<kPerRegister, kIsF16>(values);
  }
  if constexpr (kIsF16)
    MmaF16(d, a, b);
  else if constexpr (kPerRegister == 2)
    MmaBf16(d, a, b);
  else
    MmaE4m3(d, a, b);
  for (int r = 0; r < 4; ++r) args.d[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = d[r];
}

template <int kPerRegister, bool kIsF16 = false>
void ExpectProduct() {
  constexpr int kDepth = 8 * kPerRegister;
  std::vector<float> a(16 * kDepth), b(kDepth * 8), d(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
  Stream stream;
  Launch<MultiplyKernel<kPerRegister, kIsF16>>(stream.handle, "multiply", {},
                                               MmaArgs{a.data(), b.data(), d.data()});
  stream.queue.RunAll();
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 8; ++n) {
      float expected = 0;
      for (size_t k = 0; k < kDepth; ++k) expected += a[m * kDepth + k] * b[k * 8 + n];
      EXPECT_EQ(d[m * 8 + n], expected) << m << ", " << n;
    }
  }
}

TEST(Emulator, MultipliesTiles) {
  ExpectProduct<2>();
  ExpectProduct<2, /*kIsF16=*/true>();
  ExpectProduct<4>();
}

struct CopyArgs {
  const uint16_t* from;
  uint32_t* to;  // [32, 4]
  uint32_t* turned;
};

void LoadKernel(CopyArgs args) {
  auto* shared = reinterpret_cast<uint16_t*>(SharedMemory());
  const int lane = static_cast<int>(threadIdx.x);
  AsyncCopy16(shared + lane * 8, args.from + lane * 8, true);
  AsyncCommit();
  AsyncWait<0>();
  __syncwarp();
  uint32_t registers[4];
  LoadMatrix4(registers, shared + lane * 8);
  for (int m = 0; m < 4; ++m) args.to[lane * 4 + m] = registers[m];
  LoadMatrix4Transposed(registers, shared + lane * 8);
  for (int m = 0; m < 4; ++m) args.turned[lane * 4 + m] = registers[m];
}

TEST(Emulator, LoadsMatricesFromSharedMemory) {
  alignas(16) uint16_t from[256];
  for (int i = 0; i < 256; ++i) from[i] = static_cast<uint16_t>(i);
  uint32_t to[128], turned[128];
  Stream stream;
  Launch<LoadKernel>(stream.handle, "load", {.shared_bytes = 512}, CopyArgs{from, to, turned});
  stream.queue.RunAll();
  // Lane 5: row 1, columns 2 and 3 of each matrix; transposed, rows 2 and 3 of column 1.
  EXPECT_EQ(to[5 * 4], 10u | 11u << 16);
  EXPECT_EQ(to[5 * 4 + 3], (192u + 10) | (192u + 11) << 16);
  EXPECT_EQ(turned[5 * 4 + 1], (64u + 17) | (64u + 25) << 16);
}

TEST(DeviceNumbers, AreThoseOfTheHost) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const float expected = ToFloat(Float8E4M3{byte});
    EXPECT_EQ(BitsOf(E4m3ToFloat(byte)), BitsOf(expected)) << code;
  }
  kernels::Random random(1);
  for (const float value : random.Normal(10000, 100.0f)) {
    EXPECT_EQ(FloatToE4m3(value), ToFloat8E4M3(value).bits) << value;
    EXPECT_EQ(FloatToBf16(value), ToBFloat16(value).bits) << value;
  }
  constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 16; ++code)
    EXPECT_EQ(E2m1ToFloat(code), code & 8 ? -kE2m1[code & 7] : kE2m1[code & 7]);
}

// Of F16: the bits of numbers, of ties between neighbours, and of what is beside them.
TEST(DeviceNumbers, RoundToF16) {
  const auto low = [](float value) { return PackF16(value, 1.0f) & 0xFFFFu; };
  EXPECT_EQ(PackF16(1.0f, -2.0f), 0xC0003C00u);
  EXPECT_EQ(low(65504.0f), 0x7BFFu);
  EXPECT_EQ(low(65519.9f), 0x7BFFu);
  EXPECT_EQ(low(65520.0f), 0x7C00u);
  EXPECT_EQ(low(-INFINITY), 0xFC00u);
  EXPECT_EQ(low(NAN), 0x7FFFu);
  EXPECT_EQ(low(1.0f + 0x1p-11f), 0x3C00u);  // a tie, to even
  EXPECT_EQ(low(1.0f + 0x1.8p-10f), 0x3C02u);
  EXPECT_EQ(low(1.0f + 0x1.002p-11f), 0x3C01u);
  EXPECT_EQ(low(0x1p-14f), 0x0400u);
  EXPECT_EQ(low(0x1.ff8p-15f), 0x03FFu);  // subnormal numbers
  EXPECT_EQ(low(0x1.ffcp-15f), 0x0400u);
  EXPECT_EQ(low(-0x1p-24f), 0x8001u);
  EXPECT_EQ(low(0x1p-25f), 0x0000u);
  EXPECT_EQ(low(0x1.8p-24f), 0x0002u);
  uint32_t first, second;
  E4m3x4ToF16(0xFE7E3801u, first, second);  // 2^-9, 1, 448, -448
  EXPECT_EQ(first, 0x3C001800u);
  EXPECT_EQ(second, 0xDF005F00u);
  E4m3x4ToF16(0xFF7F8000u, first, second);  // 0, -0, NaN, NaN
  EXPECT_EQ(first, 0x80000000u);
  EXPECT_EQ(second & 0x7C007C00u, 0x7C007C00u);
}

void Stuck(ReverseArgs) {
  if (threadIdx.x < 32) __shfl_sync(~0u, 1, 0);
  if (threadIdx.x == 33) __shfl_sync(~0u, 1, 0);
}

TEST(EmulatorDeathTest, NamesTheKernelWhoseThreadsWaitForEver) {
  Stream stream;
  Launch<Stuck>(stream.handle, "stuck", {.threads = 64}, ReverseArgs{});
  EXPECT_DEATH(stream.queue.RunAll(), "stuck.*warp");
}

struct LastCopyArgs {
  const uint16_t* from;
  bool copies;
};

void EndWithAGroup(LastCopyArgs args) {
  if (args.copies) AsyncCopy16(SharedMemory(), args.from, true);
  AsyncCommit();
}

// A group of nothing may be under way at the end, as the last one of a pipeline is.
TEST(EmulatorDeathTest, NamesTheKernelThatEndsBeforeItsCopies) {
  alignas(16) uint16_t from[8] = {};
  Stream stream;
  Launch<EndWithAGroup>(stream.handle, "pipeline", {.shared_bytes = 16}, LastCopyArgs{from, false});
  stream.queue.RunAll();
  Launch<EndWithAGroup>(stream.handle, "hasty", {.shared_bytes = 16}, LastCopyArgs{from, true});
  EXPECT_DEATH(stream.queue.RunAll(), "hasty.*copies");
}

struct VectorArgs {
  const float* from;
  float* to;
};

void CopyVector(VectorArgs args) {
  if (threadIdx.x == 0)
    *reinterpret_cast<float4*>(args.to) = *reinterpret_cast<const float4*>(args.from);
}

// Where a sanitizer looks first, it is the one to say so.
TEST(EmulatorDeathTest, NamesTheKernelWhoseVectorIsNotAligned) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5}, to[8] = {};
  const auto launch = [&](int from_offset, int to_offset) {
    Stream stream;
    Launch<CopyVector>(stream.handle, "vector", {}, VectorArgs{from + from_offset, to + to_offset});
    stream.queue.RunAll();
  };
  launch(4, 0);
  EXPECT_EQ(to[0], 5);
  EXPECT_DEATH(launch(1, 0), "vector.*no multiple|misaligned");
  EXPECT_DEATH(launch(0, 2), "vector.*no multiple|misaligned");
}

TEST(EmulatorDeathTest, RefusesLaunchesThatADeviceRefuses) {
  const auto launch = [](const LaunchShape& shape) {
    Stream stream;
    Launch<Reverse>(stream.handle, "reverse", shape, ReverseArgs{});
    stream.queue.RunAll();
  };
  EXPECT_DEATH(launch({.threads = 33}), "reverse.*whole warps");
  EXPECT_DEATH(launch({.grid_y = 65536}), "reverse.*65535");
  EXPECT_DEATH(launch({.shared_bytes = 100 * 1024}), "reverse.*shared memory");
}

}  // namespace
}  // namespace sluice::emulated
