#include "kernels/cuda/emulator.h"

#include <vector>

#include <gmock/gmock.h>

#include "device/emulated_queue.h"
#include "kernels/cuda/device_code.h"

namespace sluice::emulated {
namespace {

// A stream that runs launches in its queue.
struct Stream {
  EmulatedQueue queue;
  LaunchFailure failure;
  StreamHandle handle{&queue, &failure};
};

struct ReverseArgs {
  int* values;
};

// Reverses the numbers of a block through shared memory.
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

// F16: checks the bits of numbers, of ties between adjacent numbers, and of numbers next to ties.
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

// Checks E4M3 in the same way as F16.
TEST(DeviceNumbers, RoundToE4m3) {
  EXPECT_EQ(PackE4m3(1, -2), 0xC038u);
  EXPECT_EQ(PackE4m3(NAN, -NAN), 0xFF7Fu);
  EXPECT_EQ(instruction::PackE4m3(NAN, -NAN), 0x7F7Fu);
  EXPECT_EQ(PackE4m3(-INFINITY, 449), 0x7EFEu);
  EXPECT_EQ(PackE4m3(-0.0f, 0x1p-10f), 0x0080u);          // a tie, to even
  EXPECT_EQ(PackE4m3(0x1.8p-9f, 0x1.001p-10f), 0x0102u);  // subnormal codes
  EXPECT_EQ(PackE4m3(17, 19), 0x5A58u);                   // ties between 16, 18 and 20
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

// An empty group may be pending at the end, like the last one of a pipeline.
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

// If a sanitizer checks alignment first, it reports the error instead.
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
