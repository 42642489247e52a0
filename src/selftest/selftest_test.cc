// Runs selftest's own checks and measurements on the emulator.
#include <map>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "device/device_testing.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/emulator.h"
#include "selftest/check_parts.h"
#include "selftest/measure_run.h"

namespace sluice::selftest {

using checks::CheckExtent;
using checks::CheckRow;
using checks::CheckRun;
using checks::DeviceUnderTest;

namespace {

// Runs a kernel's threads in both orders: results must be bit-identical.
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
  ExpectPassed(CheckExtent::kQuick, 18);
}
TEST(Checks, HeavyPassOnTheEmulator) {
  ExpectPassed(CheckExtent::kSlow, 3);
}

// Runs warps and lanes in random orders.
TEST(Checks, OfDrawsPassInSeededOrders) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  std::vector<uint64_t> forward;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulator::SetOrder(seed == 0 ? emulator::Order::kForward : emulator::Order::kSeeded, seed);
    CheckRun run(*device, {}, CheckExtent::kSome);
    CheckDraws(run);
    std::vector<uint64_t> digests;
    for (const CheckRow& row : run.rows()) {
      EXPECT_TRUE(row.passed) << row.name << " " << row.shape << ": " << row.message;
      digests.push_back(row.digest);
    }
    if (seed == 0) forward = digests;
    EXPECT_EQ(digests, forward) << "the order of the threads shows";
  }
  emulator::SetOrder(emulator::Order::kForward);
}

// Faults in draws, one at a time.
using Spoil = void (*)(kernels::DrawExtras&);
constexpr Spoil kSpoils[] = {
    [](kernels::DrawExtras& extras) { extras.num_biases -= extras.num_biases > 0; },
    [](kernels::DrawExtras& extras) { extras.num_counts -= extras.num_counts > 0; },
    [](kernels::DrawExtras& extras) { extras.repetition = 1; },
    [](kernels::DrawExtras& extras) { extras.frequency = 0; },
    [](kernels::DrawExtras& extras) { extras.presence = 0; },
    [](kernels::DrawExtras& extras) { extras.draw_mask = extras.mask; },
    [](kernels::DrawExtras& extras) { extras.mask = -1; },
    [](kernels::DrawExtras& extras) { extras.mask = extras.draw_mask; },
    [](kernels::DrawExtras& extras) { extras.is_changed = 0; },
    [](kernels::DrawExtras& extras) { extras.num_top -= extras.num_top > 0; },
    [](kernels::DrawExtras& extras) {
      if (extras.logprobs == kernels::LogprobsOf::kDrawn)
        extras.logprobs = kernels::LogprobsOf::kRaw;
    },
    [](kernels::DrawExtras& extras) {
      if (extras.logprobs == kernels::LogprobsOf::kRaw)
        extras.logprobs = kernels::LogprobsOf::kDrawn;
    }};
Spoil spoil = nullptr;

void SampleSpoiled(const StreamHandle& stream, const device::SampleRowsArgs& args) {
  // The emulator's memory is accessible by the host.
  auto* const extras = const_cast<kernels::DrawExtras*>(args.extras);
  for (int64_t i = 0; extras != nullptr && i < args.rows; ++i) spoil(extras[i]);
  emulated::LaunchSampleRows(stream, args);
}

TEST(Checks, FindWrongDraws) {
  auto device = DeviceUnderTest::Open(DeviceKind::kEmulated, 0);
  ASSERT_TRUE(device);
  device::DeviceKernels kernels = device->kernels();
  kernels.sample_rows = SampleSpoiled;
  device->ReplaceKernels(kernels);
  for (size_t i = 0; i < std::size(kSpoils); ++i) {
    spoil = kSpoils[i];
    CheckRun run(*device, {}, CheckExtent::kSome);
    CheckDrawExtras(run);
    EXPECT_FALSE(run.passed()) << "number " << i;
  }
}

TEST(Checks, HaveEveryPartOnce) {
  const DemoModel none;
  std::vector<std::string_view> names;
  for (const checks::CheckPart& part : CheckParts(none)) names.push_back(part.name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("instructions", "memory", "rows", "rope", "linear", "library",
                                     "grouped-linear", "attention", "latent", "mixers", "experts",
                                     "draws", "lora", "dummy-weights", "models"));
}

// Everything that a GPU will run is allocated, launched and awaited; no time is measured.
TEST(Measurements, RunOnTheEmulatorInSmallShapes) {
  auto device = DeviceUnderTest::Open(testing::TestedKind(), 0);
  ASSERT_TRUE(device);
  MeasureRun run(*device, {});
  for (const MeasurePart& part : MeasureParts()) run.RunPart(part);
  EXPECT_FALSE(run.failed());
  EXPECT_FALSE(run.lost());
  std::map<std::string, int> rows;
  const json::Value report = run.ToJson();
  for (const json::Value& row : report.as_array()) {
    ++rows[row.Find("part")->as_string()];
    // The emulator has no library.
    if (row.Find("kernel")->as_string() == "library's product") continue;
    EXPECT_EQ(row.Find("message")->as_string(), "") << row.Find("shape")->as_string();
  }
  // MXFP4 inputs are measured where kernels multiply their codes.
  const int formats = device->has_mxf4_products() ? 8 : 7;
  EXPECT_EQ(rows["skinny"], formats * 4 * 5);
  EXPECT_EQ(rows["large"], formats * 4 * 2);
  EXPECT_EQ(rows["decode"], 2 * 7);
  EXPECT_EQ(rows["prefill"], 2 * 4);
  EXPECT_EQ(rows["rows"], 3 * 4 + 2 + 3);
}

}  // namespace
}  // namespace sluice::selftest
