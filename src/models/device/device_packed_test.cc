// Tests inputs of NVFP4 products that are packed by the kernels that write them. Runs on an
// emulated Blackwell GPU with a substitute for cuBLASLt.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/emulator.h"
#include "kernels/cuda/library_linear_testing.h"
#include "models/device/device_model_testing.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using testing::Runner;
using testing::SomeTokens;

class DevicePackedTest : public ::testing::TestWithParam<const char*> {
 protected:
  DevicePackedTest()
      : folder_(fs::temp_directory_path() / fmt::format("sluice-packed-{}", getpid())) {
    device::ResetFakeCublasLt().compute_capability = 100;
    fs::remove_all(folder_);
  }
  ~DevicePackedTest() override { fs::remove_all(folder_); }

  // All models use the kernels that were chosen by the first model's measurements.
  std::unique_ptr<DeviceRunner> Load(bool packs_apart,
                                     EmulatedDeviceOptions device = testing::kArraysApart) const {
    ModelOptions options = DeviceOptions();
    options.linear_library = SLUICE_FAKE_CUBLASLT;
    options.linear_tactics = folder_ / "tactics.json";
    options.packs_rows_apart = packs_apart;
    device.compute_major = 10;
    return std::make_unique<DeviceRunner>(DataFolder(GetParam()), options, device);
  }

 private:
  fs::path folder_;
};

const std::vector<std::vector<Runner::Part>> kSteps = {
    {{0, SomeTokens(20, 1)}, {1, SomeTokens(7, 2)}},
    {{0, {5}}},
    {{0, {6}}, {1, {7}}, {2, SomeTokens(33, 3)}},
    {{2, {8}}, {1, {9}}}};

TEST_P(DevicePackedTest, HeavyLogitsAreThoseOfRowsThatArePackedApart) {
  const auto apart = Load(/*packs_apart=*/true);
  std::vector<std::vector<testing::LogitRows>> expected;
  for (const auto& step : kSteps) expected.push_back(apart->runner().RunStep(step));
  for (const EmulatedDeviceOptions& memory : {testing::kArraysApart, testing::kArraysShared}) {
    const auto together = Load(/*packs_apart=*/false, memory);
    for (size_t i = 0; i < kSteps.size(); ++i)
      EXPECT_TRUE(together->runner().RunStep(kSteps[i]) == expected[i]) << i;
  }
}

// A step has one launch less for each NVFP4 product whose inputs are packed by another kernel.
TEST_P(DevicePackedTest, HeavyNoLaunchPacksRows) {
  std::map<std::string, int> counts[2];
  int64_t products[2] = {};
  for (const bool packs_apart : {true, false}) {
    const auto model = Load(packs_apart);
    std::map<std::string, int>& count = counts[packs_apart ? 0 : 1];
    const int64_t before = device::TheFakeCublasLt().num_products;
    emulator::SetRunner([&](const emulator::KernelLaunch& launch) { ++count[launch.name]; });
    model->runner().RunStep({{0, {5}}});
    emulator::SetRunner({});
    products[packs_apart ? 0 : 1] = device::TheFakeCublasLt().num_products - before;
  }
  EXPECT_GE(counts[0]["pack_nvf4"], 4);
  EXPECT_EQ(counts[0]["pack_nvf4"], products[0]);
  EXPECT_EQ(products[1], products[0]);
  counts[0].erase("pack_nvf4");
  EXPECT_EQ(counts[1], counts[0]);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DevicePackedTest,
                         ::testing::Values("llama4-modelopt-nvfp4", "qwen3-moe-llmc-nvfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice
