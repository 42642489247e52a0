// Runs the checks of all kernels on the emulated device, and tests that they detect kernels that
// are slightly wrong.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "kernels/cuda/emulator.h"

namespace sluice::checks {
namespace {

using ::testing::HasSubstr;

std::vector<CheckRow> RunPart(const DeviceUnderTest& device, std::string_view name,
                              CheckExtent extent = CheckExtent::kQuick) {
  CheckRun run(device, {}, extent);
  for (const CheckPart& part : KernelCheckParts()) {
    if (part.name == name) run.RunPart(part);
  }
  EXPECT_FALSE(run.lost());
  return run.rows();
}

class KernelChecks : public ::testing::TestWithParam<std::string_view> {
 protected:
  void TearDown() override {
    emulator::SetOrder(emulator::Order::kForward);
    emulator::SetComputeCapability(90);
  }

  // Runs the threads of a block, and the blocks of a grid, in both orders. All results must be
  // bit-identical.
  void ExpectPassed(CheckExtent extent) {
    emulator::SetOrder(emulator::Order::kForward);
    const std::vector<CheckRow> forward = Run(extent);
    emulator::SetOrder(emulator::Order::kReverse);
    // All results must also be bit-identical with other instructions for E4M3 products.
    emulator::SetComputeCapability(89);
    ExpectEqual(forward, Run(extent));
  }

  static std::vector<CheckRow> Run(CheckExtent extent, std::string_view left_out = "") {
    auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
    EXPECT_TRUE(device);
    std::vector<CheckRow> rows = RunPart(*device, GetParam(), extent);
    std::erase_if(rows, [&](const CheckRow& row) { return row.name == left_out; });
    for (const CheckRow& row : rows)
      EXPECT_TRUE(row.passed || row.skipped) << row.name << " " << row.shape << row.message;
    return rows;
  }
  static void ExpectEqual(const std::vector<CheckRow>& expected, const std::vector<CheckRow>& got) {
    ASSERT_EQ(expected.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(expected[i].digest, got[i].digest)
          << got[i].name << " " << got[i].shape << ": the order of the threads shows";
    }
  }
};

std::vector<std::string_view> PartNames() {
  std::vector<std::string_view> names;
  for (const CheckPart& part : KernelCheckParts()) names.push_back(part.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Parts, KernelChecks, ::testing::ValuesIn(PartNames()),
                         [](const ::testing::TestParamInfo<std::string_view>& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(KernelChecks, Pass) {
  ExpectPassed(CheckExtent::kQuick);
}
// Several blocks run concurrently, copies complete at random times, and warps and lanes run in any
// order.
TEST_P(KernelChecks, PassInSeededOrders) {
  emulator::SetOrder(emulator::Order::kForward);
  const std::vector<CheckRow> forward = Run(CheckExtent::kSome);
  emulator::SetOrder(emulator::Order::kSeeded, /*seed=*/1);
  ExpectEqual(forward, Run(CheckExtent::kSome));
}
// Compute capability 8.0 encodes and decodes E4M3 by arithmetic, and multiplies in BF16. Operators
// on rows give bit-identical results. Sums of products differ, and so do the NaNs to which codes
// are converted.
TEST_P(KernelChecks, PassWithoutE4m3Instructions) {
  const std::string_view part = GetParam();
  const bool makes_rows = part == "rows" || part == "rope" || part == "latent";
  if (!makes_rows && part != "instructions" && part != "linear" && part != "attention")
    GTEST_SKIP() << "no E4M3";
  const auto run = [](int capability) {
    emulator::SetComputeCapability(capability);
    return Run(CheckExtent::kSome, /*left_out=*/"mma e4m3");
  };
  const std::vector<CheckRow> by_arithmetic = run(80);
  if (makes_rows) ExpectEqual(run(90), by_arithmetic);
}
TEST_P(KernelChecks, HeavyPass) {
  ExpectPassed(CheckExtent::kSlow);
}

// A faulty kernel that does not write the last column of a single row.
void ForgetfulConversion(const StreamHandle& stream, const device::ConvertRowsArgs& args) {
  device::ConvertRowsArgs less = args;
  if (args.rows == 1) --less.cols;
  emulated::LaunchConvertRows(stream, less);
}
// A faulty kernel that writes beyond its output.
void OverrunningEmbedding(const StreamHandle& stream, const device::EmbeddingArgs& args) {
  device::EmbeddingArgs more = args;
  more.out += 8;
  emulated::LaunchEmbedding(stream, more);
}

TEST(KernelChecksOfWrongKernels, Fail) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  device::DeviceKernels kernels = device->kernels();
  kernels.convert_rows = ForgetfulConversion;
  kernels.embedding = OverrunningEmbedding;
  device->ReplaceKernels(kernels);
  for (const CheckRow& row : RunPart(*device, "rows")) {
    if (row.name == "embedding") {
      EXPECT_THAT(row.message, HasSubstr("behind an output")) << row.shape;
    } else if (row.name == "convert_rows") {
      // This faulty kernel computes single rows wrong, and the "not aligned" case never converts a
      // single row.
      EXPECT_EQ(row.passed, row.shape.find("not aligned") != std::string::npos) << row.shape;
    } else if (row.name != "nvfp4 rows" && row.name != "mxfp4 rows") {
      EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
    }
  }
}

TEST(CheckRun, GoesOnAfterACheckThatFailed) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {});
  run.Case("nothing", "", [](CaseMemory&, Comparison&) {});
  // Work that a check enqueued before it failed completes before its memory is freed, so the next
  // check finds a usable device.
  run.Case("halfway", "", [&](CaseMemory& memory, Comparison& comparison) {
    const float* half = memory.Out<float>(64);
    EXPECT_NE(half, nullptr);
    EXPECT_EQ(memory.Out<float>(device->device().info().total_bytes), nullptr);
    memory.Launch(&device::DeviceKernels::rope_table, {});
    comparison.AddEqual(static_cast<int64_t>(memory.Read(half, 64).size()), 64);
  });
  run.Case("next", "", [](CaseMemory& memory, Comparison& comparison) {
    const std::vector<int32_t> values = {1, 2, 3};
    const auto back = memory.Read(memory.In(values), 3);
    for (size_t i = 0; i < 3; ++i) comparison.AddEqual(back[i], values[i]);
  });
  EXPECT_FALSE(run.lost());
  ASSERT_EQ(run.rows().size(), 3u);
  EXPECT_EQ(run.rows()[0].message, "nothing was compared");
  EXPECT_THAT(run.rows()[1].message, HasSubstr("of device memory are needed"));
  EXPECT_TRUE(run.rows()[2].passed) << run.rows()[2].message;
}

}  // namespace
}  // namespace sluice::checks
