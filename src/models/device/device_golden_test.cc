// Models on the emulated device against transformers (golden_test.cc says what the files hold).
#include <gtest/gtest.h>

#include "models/device/device_model_testing.h"
#include "models/golden_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceRunner;
using testing::GoldenCase;
using testing::SmallOptions;

struct DeviceGoldenCase {
  const char* name;
  ElementType kv_type;
  ModelOptions::ActivationRounding rounding;
  const char* file;
  double tolerance;
};

class DeviceGoldenTest : public ::testing::TestWithParam<DeviceGoldenCase> {};

TEST_P(DeviceGoldenTest, StaysNearTransformers) {
  const std::filesystem::path folder = DataFolder(GetParam().name);
  ModelOptions options = SmallOptions(ElementType::kBF16, GetParam().kv_type);
  options.activation_format = GetParam().rounding;
  options.max_slices = 1;
  DeviceRunner device(folder, options);
  for (const GoldenCase& golden : testing::ReadGolden(folder / GetParam().file)) {
    const double rms = testing::WorstRms(golden, device.runner().RunAlone(golden.prompt, 512));
    EXPECT_LE(rms, GetParam().tolerance) << "prompt of " << golden.prompt.size();
  }
}

using Rounding = ModelOptions::ActivationRounding;
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceGoldenTest,
                         ::testing::Values(DeviceGoldenCase{"llama-bf16", ElementType::kBF16,
                                                            Rounding::kAuto, "golden.json", 0.05},
                                           DeviceGoldenCase{"qwen3-bf16", ElementType::kBF16,
                                                            Rounding::kAuto, "golden.json", 0.05}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name +
                                  (info.param.rounding == Rounding::kBf16 ? "_bf16_inputs" : "");
                         });

}  // namespace
}  // namespace sluice
