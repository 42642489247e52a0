// Tests that the emulator's seeded orders find faults that hardware rarely shows: missing
// synchronization, and writes just past the end.
#include <cstring>
#include <functional>

#include <gmock/gmock.h>

#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/linear_plan.h"
#include "kernels/cuda/seeded_faults_testing.h"
#include "kernels/cuda/warpgroup_faults_testing.h"

namespace sluice::emulated::faults {
namespace {

constexpr uint64_t kSeeds = 40;

class SeededOrders : public ::testing::Test {
 protected:
  void TearDown() override {
    emulator::SetOrder(emulator::Order::kForward);
    emulator::SetComputeCapability(90);
  }

  // Returns the number of seeds, among `seeds`, with a wrong result.
  static int CountWrong(const std::function<bool()>& run, uint64_t seeds = kSeeds) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      emulator::SetOrder(emulator::Order::kSeeded, seed);
      wrong += !run();
    }
    return wrong;
  }
};

TEST_F(SeededOrders, FindFaultsOfAPipelineOfCopies) {
  EXPECT_EQ(CountWrong(RunPipeline<Fault::kNone>), 0);
  EXPECT_GT(CountWrong(RunPipeline<Fault::kCopyBeforeBarrier>), 0);
  EXPECT_GT(CountWrong(RunPipeline<Fault::kWaitTooFew>), 0);
  EXPECT_GT(CountWrong(RunPipeline<Fault::kNoBarrier>), 0);
}

TEST_F(SeededOrders, FindFaultsOfARingOfTiles) {
  EXPECT_TRUE(RunGroupRing<GroupFault::kNone>());
  EXPECT_EQ(CountWrong(RunGroupRing<GroupFault::kNone>), 0);
  EXPECT_GT(CountWrong(RunGroupRing<GroupFault::kEmptyTooEarly>), 0);
  EXPECT_GT(CountWrong(RunGroupRing<GroupFault::kReadTooEarly>), 0);
}

// Fixed orders cannot show this fault, because in them copies complete only when a thread waits for
// them.
TEST_F(SeededOrders, FindWhatFixedOrdersDoNot) {
  for (const auto order : {emulator::Order::kForward, emulator::Order::kReverse}) {
    emulator::SetOrder(order);
    EXPECT_TRUE(RunPipeline<Fault::kCopyBeforeBarrier>());
    EXPECT_TRUE(RunSplitSum<Fault::kNoFence>(/*watches=*/false));
  }
}

TEST_F(SeededOrders, FindFaultsOfASumByBlocks) {
  const auto count = [](bool (*run)(bool)) { return CountWrong([run] { return run(true); }); };
  EXPECT_EQ(count(RunSplitSum<Fault::kNone>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kNoFence>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kFenceOfOne>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kFenceTooLate>), 0);
  EXPECT_GT(count(RunSplitSum<Fault::kReadsCached>), 0);
}

// Uses the real matrix product kernel: concurrent blocks write parts of a sum, with weakly ordered
// global memory.
TEST_F(SeededOrders, LetSumsOfRangesOfARealProductPass) {
  constexpr int64_t kN = 64, kK = 2048, kM = 2;
  std::vector<uint16_t> w(kN * kK, 0x3F80), x(kM * kK, 0x3F80);  // ones
  for (size_t i = 0; i < w.size(); i += 3) w[i] = 0x4000;        // every third weight is two
  device::LinearArgs args = {};
  args.w.codes = w.data();
  args.w.type = ElementType::kBF16;
  args.w.n = kN;
  args.w.k = kK;
  args.x = x.data();
  args.x_type = ElementType::kBF16;
  args.m = kM;
  args.y_type = ElementType::kF32;
  args.y_stride = kN;
  const int64_t ranges = device::LinearSplitOf(args.w).ranges;
  ASSERT_GT(ranges, 1);
  std::vector<float> y(kM * kN), scratch(static_cast<size_t>(ranges) * kM * kN + 4096);
  args.y = y.data();
  args.scratch = scratch.data();
  std::vector<float> expected(kM * kN);
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int64_t k = 0; k < kK; ++k)
      expected[i] += (i % kN * kK + static_cast<size_t>(k)) % 3 == 0 ? 2.0f : 1.0f;
  }
  EXPECT_EQ(CountWrong(
                [&] {
                  y.assign(y.size(), 0);
                  emulator::WatchGlobal(scratch.data(), scratch.size() * sizeof(float));
                  FaultStream stream;
                  LaunchLinear(stream.handle, args);
                  stream.queue.RunAll();
                  emulator::WatchGlobal(nullptr, 0);
                  return y == expected;
                },
                /*seeds=*/2),
            0);
}

TEST_F(SeededOrders, FindLanesThatAreThoughtToRunInStep) {
  EXPECT_EQ(CountWrong(RunExchange<Fault::kNone>), 0);
  EXPECT_GT(CountWrong(RunExchange<Fault::kNoWarpBarrier>), 0);
  EXPECT_GT(CountWrong(RunExchange<Fault::kBlocksOverlap>), 0);
}

TEST_F(SeededOrders, AreEqualForEqualSeeds) {
  const auto wrong_seeds = [] {
    std::vector<uint64_t> seeds;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      emulator::SetOrder(emulator::Order::kSeeded, seed);
      if (!RunPipeline<Fault::kWaitTooFew>()) seeds.push_back(seed);
    }
    return seeds;
  };
  EXPECT_EQ(wrong_seeds(), wrong_seeds());
}

TEST_F(SeededOrders, FindABarrierThatIsLeftOut) {
  emulator::LeaveOutBarrier("pipeline", kSteps - 1);
  EXPECT_GT(CountWrong(RunPipeline<Fault::kNone>), 0);
  EXPECT_TRUE(emulator::HasLeftOutBarrier());
  emulator::LeaveOutBarrier("pipeline", kSteps);
  EXPECT_EQ(CountWrong(RunPipeline<Fault::kNone>), 0);
  EXPECT_FALSE(emulator::HasLeftOutBarrier());
  emulator::LeaveOutBarrier("");
}

struct OverrunArgs {
  unsigned bytes;
};

void WriteShared(OverrunArgs args) {
  for (unsigned i = threadIdx.x; i < args.bytes; i += blockDim.x) SharedMemory()[i] = 1;
}

TEST_F(SeededOrders, NameTheKernelThatWritesBehindItsSharedMemory) {
  const auto run = [](unsigned bytes) {
    FaultStream stream;
    Launch<WriteShared>(stream.handle, "overrun", {.shared_bytes = 96}, OverrunArgs{bytes});
    stream.queue.RunAll();
  };
  run(96);
  EXPECT_DEATH(run(97), "behind the block's shared memory|use-after-poison");
}

struct ProductArgs {
  const uint8_t* codes;  // [6, 32 lanes, 4]
  uint32_t* out;         // [32 lanes, 4 + 4]: sums of a product; codes as F16 and as BF16 numbers
};

void MultiplyE4m3(ProductArgs args) {
  uint32_t registers[6];
  for (int i = 0; i < 6; ++i) memcpy(&registers[i], args.codes + (i * 32 + threadIdx.x) * 4, 4);
  float d[4] = {0.1f, -3, 7, 1e-3f};
  uint32_t* out = args.out + threadIdx.x * 8;
  if (HasE4m3Mma())
    MmaE4m3(d, {registers[0], registers[1], registers[2], registers[3]},
            {registers[4], registers[5]});
  memcpy(out, d, sizeof(d));
  E4m3x4ToF16(registers[0], out[4], out[5]);
  E4m3x4ToBf16(registers[0], out[6], out[7]);
}

// The branches for different compute capabilities must give bit-identical results.
TEST_F(SeededOrders, BranchesOfAllComputeCapabilitiesAgree) {
  std::vector<uint8_t> codes(6 * 32 * 4);
  // All codes except NaN; the check of conversions covers NaN codes.
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i * 37 + i / 256);
    if ((codes[i] & 0x7F) == 0x7F) codes[i] = 0x01;
  }
  const auto run = [&](int capability) {
    emulator::SetComputeCapability(capability);
    std::vector<uint32_t> out(32 * 8);
    FaultStream stream;
    Launch<MultiplyE4m3>(stream.handle, "product", {}, ProductArgs{codes.data(), out.data()});
    stream.queue.RunAll();
    return out;
  };
  const std::vector<uint32_t> expected = run(89);
  EXPECT_EQ(run(90), expected);
  EXPECT_EQ(run(100), expected);
  EXPECT_EQ(run(120), expected);
  const std::vector<uint32_t> old = run(80);
  for (size_t lane = 0; lane < 32; ++lane) {
    EXPECT_FALSE(std::equal(&old[lane * 8], &old[lane * 8 + 4], &expected[lane * 8]));
    EXPECT_TRUE(std::equal(&old[lane * 8 + 4], &old[lane * 8 + 8], &expected[lane * 8 + 4]));
  }
}

struct EncodeArgs {
  uint32_t first;  // bits of the first number
  uint32_t* out;   // [threads]
};

void EncodeE4m3(EncodeArgs args) {
  const auto bits = args.first + threadIdx.x * 0x10001u;
  args.out[threadIdx.x] = PackE4m3(FloatFromBits(bits), FloatFromBits(~bits));
}

// Encodes numbers with all exponents and signs, and NaN.
TEST_F(SeededOrders, CodesOfAllComputeCapabilitiesAgree) {
  const auto run = [](int capability, uint32_t first) {
    emulator::SetComputeCapability(capability);
    std::vector<uint32_t> out(1024);
    FaultStream stream;
    Launch<EncodeE4m3>(stream.handle, "encode", {.threads = 1024}, EncodeArgs{first, out.data()});
    stream.queue.RunAll();
    return out;
  };
  for (uint32_t part = 0; part < 64; ++part) {
    const uint32_t first = part << 26;
    const std::vector<uint32_t> expected = run(80, first);
    EXPECT_EQ(run(89, first), expected) << part;
    EXPECT_EQ(run(90, first), expected) << part;
  }
}

}  // namespace
}  // namespace sluice::emulated::faults
