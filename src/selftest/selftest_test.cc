// The checks and measurements that are selftest's own, on the emulator.
#include <map>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/cuda/emulator.h"
#include "selftest/check_parts.h"
#include "selftest/measure_run.h"

namespace sluice::selftest {

using checks::CheckExtent;
using checks::CheckRow;
using checks::CheckRun;
using checks::DeviceUnderTest;

namespace {

// In both orders of a kernel's threads: no bit may differ.
void ExpectPassed(CheckExtent extent, size_t rows) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  std::vector<uint64_t> digests;
  for (const auto order : {emulator::Order::kForward, emulator::Order::kReverse}) {
    emulator::SetOrder(order);
    CheckRun run(*device, {}, extent);
    CheckMemory(run);
    CheckDraws(run);
    ASSERT_EQ(run.rows().size(), rows);
    for (const CheckRow& row : run.rows()) {
      EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
      digests.push_back(row.digest);
    }
  }
  emulator::SetOrder(emulator::Order::kForward);
  for (size_t i = 0; i < rows; ++i)
    EXPECT_EQ(digests[i], digests[rows + i]) << "the order of the threads shows";
}
TEST(Checks, PassOnTheEmulator) {
  ExpectPassed(CheckExtent::kQuick, 16);
}
TEST(Checks, HeavyPassOnTheEmulator) {
  ExpectPassed(CheckExtent::kSlow, 2);
}

TEST(Checks, HaveEveryPartOnce) {
  const DemoModel none;
  std::vector<std::string_view> names;
  for (const checks::CheckPart& part : CheckParts(none)) names.push_back(part.name);
  EXPECT_THAT(names, testing::ElementsAre("instructions", "memory", "rows", "rope", "linear",
                                          "library", "grouped-linear", "attention", "experts",
                                          "draws", "dummy-weights", "models"));
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
  EXPECT_EQ(rows["skinny"], 7 * 4 * 4);
  EXPECT_EQ(rows["large"], 7 * 4 * 2);
  EXPECT_EQ(rows["decode"], 2 * 7);
  EXPECT_EQ(rows["prefill"], 2 * 4);
  EXPECT_EQ(rows["rows"], 3 * 4 + 3);
}

}  // namespace
}  // namespace sluice::selftest
