// That the checks pass on the emulator, and that they would not pass anything.
#include <cmath>
#include <map>

#include <gmock/gmock.h>

#include "kernels/cuda/checks/comparison.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "selftest/check_parts.h"
#include "selftest/measure_run.h"
#include "tensor/bfloat16.h"
#include "tensor/float8.h"

namespace sluice::selftest {

using checks::CaseMemory;
using checks::CheckPart;
using checks::CheckRow;
using checks::CheckRun;
using checks::Comparison;
using checks::DeviceUnderTest;

namespace {

using testing::HasSubstr;

TEST(Comparison, LeavesNoRoomAroundExactNumbers) {
  Comparison exact;
  exact.AddF32(1.5f, 1.5, 0);
  EXPECT_TRUE(exact.passed());
  exact.AddF32(std::nextafter(1.5f, 2.0f), 1.5, 0);
  EXPECT_FALSE(exact.passed());
  EXPECT_THAT(exact.first_failure(), HasSubstr("number 1"));
}

TEST(Comparison, TakesWhatSomeNumberInTheBoundRoundsTo) {
  const auto passes = [](uint16_t got, double expected, double error) {
    Comparison comparison;
    comparison.AddBf16(got, expected, error);
    return comparison.passed();
  };
  // Neighbours of BF16 above 1: 1 and 1 + 2^-7.
  const uint16_t low = ToBFloat16(1).bits, high = ToBFloat16(1 + 0x1p-7f).bits;
  EXPECT_TRUE(passes(low, 1 + 0x1p-9, 0));
  EXPECT_FALSE(passes(high, 1 + 0x1p-9, 0));
  EXPECT_FALSE(passes(high, 1 + 0x1p-9, 0x1p-10));
  EXPECT_TRUE(passes(high, 1 + 0x1p-9, 0x1p-8));
  Comparison codes;
  codes.AddE4m3(ToFloat8E4M3(16).bits, 16.5, 0);
  EXPECT_TRUE(codes.passed());
  codes.AddE4m3(ToFloat8E4M3(18).bits, 16.5, 0.1);
  EXPECT_FALSE(codes.passed());
}

TEST(Comparison, TakesNaNForNaNAlone) {
  Comparison comparison;
  comparison.AddF32(std::nanf(""), std::nan(""), 0);
  EXPECT_TRUE(comparison.passed());
  comparison.AddF32(std::nanf(""), 1, 10);
  EXPECT_FALSE(comparison.passed());
  EXPECT_TRUE(std::isinf(comparison.worst_error()));
  EXPECT_FALSE(Comparison().passed()) << "nothing was compared";
}

CheckRun RunParts(const DeviceUnderTest& device, std::initializer_list<std::string_view> names) {
  CheckRun run(device, {});
  const DemoModel none;
  for (const CheckPart& part : CheckParts(none)) {
    if (std::find(names.begin(), names.end(), part.name) != names.end()) run.RunPart(part);
  }
  return run;
}

TEST(Checks, PassOnTheEmulator) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  const CheckRun run = RunParts(
      *device, {"instructions", "memory", "rows", "rope", "experts", "draws", "dummy-weights"});
  for (const CheckRow& row : run.rows())
    EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
  EXPECT_GT(run.rows().size(), 100u);
}

// A kernel that leaves its last column as it was.
void ForgetfulConversion(const StreamHandle& stream, const device::ConvertRowsArgs& args) {
  device::ConvertRowsArgs less = args;
  if (args.rows == 1) --less.cols;
  emulated::LaunchConvertRows(stream, less);
}
// A kernel that is one row too long.
void OverrunningEmbedding(const StreamHandle& stream, const device::EmbeddingArgs& args) {
  device::EmbeddingArgs more = args;
  more.out += 8;
  emulated::LaunchEmbedding(stream, more);
}

TEST(Checks, CatchKernelsThatAreSlightlyWrong) {
  device::DeviceKernels kernels = device::KernelsOf(DeviceKind::kEmulated);
  kernels.convert_rows = ForgetfulConversion;
  kernels.embedding = OverrunningEmbedding;
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  device->ReplaceKernels(kernels);
  const CheckRun run = RunParts(*device, {"rows"});
  EXPECT_FALSE(run.passed());
  for (const CheckRow& row : run.rows()) {
    const bool is_broken =
        row.name == "embedding" || (row.name == "convert_rows" && row.shape.starts_with("1 x"));
    EXPECT_EQ(row.passed, !is_broken) << row.name << " " << row.shape << ": " << row.message;
    if (row.name == "embedding") {
      EXPECT_THAT(row.message, HasSubstr("behind an output"));
    }
  }
  EXPECT_FALSE(run.lost());
}

// What a check enqueued before it failed is through when its memory goes: the next one finds the
// device as it was.
TEST(Checks, ACheckThatFailsHalfwayIsNotTheDevicesEnd) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  CheckRun run(*device, {});
  run.Case("halfway", "", [&](CaseMemory& memory, Comparison&) -> Status {
    EXPECT_NE(memory.Out<float>(64), nullptr);
    EXPECT_EQ(memory.Out<float>(device->device().info().total_bytes), nullptr);
    return memory.status();
  });
  run.Case("next", "", [](CaseMemory& memory, Comparison& comparison) -> Status {
    const std::vector<int32_t> values = {1, 2, 3};
    const auto back = memory.Read(memory.In(values), 3);
    for (size_t i = 0; i < 3; ++i) comparison.AddEqual(back[i], values[i]);
    return memory.status();
  });
  EXPECT_FALSE(run.lost());
  ASSERT_EQ(run.rows().size(), 2u);
  EXPECT_THAT(run.rows()[0].message, HasSubstr("of device memory are needed"));
  EXPECT_TRUE(run.rows()[1].passed) << run.rows()[1].message;
}

// What a GPU will be asked is allocated, launched and waited for; no time passes on the emulator.
TEST(Measurements, RunOnTheEmulatorInSmallShapes) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  MeasureRun run(*device, {});
  for (const MeasurePart& part : MeasureParts()) run.RunPart(part);
  EXPECT_FALSE(run.failed());
  EXPECT_FALSE(run.lost());
  std::map<std::string, int> rows;
  const json::Value report = run.ToJson();
  for (const json::Value& row : report.as_array()) {
    ++rows[row.Find("part")->as_string()];
    if (row.Find("kernel")->as_string() == "library's product") continue;  // there is none
    EXPECT_EQ(row.Find("message")->as_string(), "") << row.Find("shape")->as_string();
  }
  EXPECT_EQ(rows["skinny"], 6 * 4 * 4);
  EXPECT_EQ(rows["large"], 6 * 4 * 2);
  EXPECT_EQ(rows["decode"], 2 * 7);
  EXPECT_EQ(rows["prefill"], 2 * 4);
  EXPECT_EQ(rows["rows"], 3 * 4 + 3);
}

}  // namespace
}  // namespace sluice::selftest
