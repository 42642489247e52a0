// Compares models on the emulated device with transformers (golden_test.cc describes the files).
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/device/device_model_testing.h"
#include "models/golden_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using testing::DeviceRunner;
using testing::GoldenCase;
using testing::SmallOptions;
using testing::TestName;

ModelOptions GoldenOptions(ElementType kv_type, ModelOptions::ActivationRounding rounding) {
  ModelOptions options = SmallOptions(ElementType::kBF16, kv_type);
  options.activation_format = rounding;
  options.max_slices = 1;
  return options;
}

// Models without experts, with BF16 inputs. The bound is that of DefaultModeTest, which computes in
// BF16 on the CPU. Measured: at most 0.024.
class DeviceDenseTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceDenseTest, HeavyStaysNearTransformers) {
  constexpr double kTolerance = 0.03;
  const std::filesystem::path folder = DataFolder(GetParam());
  DeviceRunner device(folder,
                      GoldenOptions(ElementType::kBF16, ModelOptions::ActivationRounding::kBf16));
  // In tiny-gemma3, norms double the logits and their errors; measured: 0.052. tiny-gemma4-shared
  // does not scale q . k down (DefaultModeOfUnscaledScoresTest); measured: 0.122.
  const std::string_view name = GetParam();
  const double tolerance = name == "tiny-gemma3"          ? 0.06
                           : name == "tiny-gemma4-shared" ? 0.15
                                                          : kTolerance;
  for (const GoldenCase& golden : testing::ReadGolden(folder / "golden.json")) {
    const double rms = testing::WorstRms(golden, device.runner().RunAlone(golden.prompt, 64));
    RecordProperty(fmt::format("rms_{}", golden.prompt.size()), fmt::format("{:.4f}", rms));
    EXPECT_LE(rms, tolerance) << "prompt of " << golden.prompt.size();
    testing::ExpectGreedy(device.runner(), golden, 2 * tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceDenseTest,
    ::testing::Values("llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16", "tiny-qwen3-bias",
                      "tiny-mistral-window", "tiny-qwen2-window", "tiny-gemma2", "tiny-gemma3",
                      "tiny-gemma4-shared", "tiny-phi3-long", "tiny-smollm3", "tiny-phi3-partial",
                      "tiny-olmo2", "tiny-olmo3", "tiny-granite", "tiny-granite4",
                      "tiny-ministral3", "qwen3-modelopt-fp8", "qwen3-llmc-fp8-block",
                      "qwen3-llmc-int8-w8a8", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-actorder",
                      "tiny-qwen3-awq", "tiny-qwen3-gptq"),
    TestName);

// Models with experts. Inputs and keys are rounded to BF16 once, while the CPU keeps more
// precision. Sometimes this flips the choice between two nearly equal experts, which changes the
// whole row, so the median over positions is bounded, not the maximum. Measured: at most 0.02.
class DeviceExpertsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceExpertsTest, HeavyMostRowsStayNearTransformers) {
  const std::filesystem::path folder = DataFolder(GetParam());
  DeviceRunner device(folder,
                      GoldenOptions(ElementType::kBF16, ModelOptions::ActivationRounding::kBf16));
  std::vector<double> all;
  for (const GoldenCase& golden : testing::ReadGolden(folder / "golden.json")) {
    const std::vector<double> rms =
        testing::RmsOfPositions(golden, device.runner().RunAlone(golden.prompt, 64));
    all.insert(all.end(), rms.begin(), rms.end());
  }
  ASSERT_GE(all.size(), 7u);
  std::ranges::sort(all);
  const double middle = all[all.size() / 2];
  RecordProperty("middle", fmt::format("{:.4f}", middle));
  EXPECT_LE(middle, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceExpertsTest,
                         ::testing::Values("tiny-llama4-mixed", "tiny-qwen3-moe-mixed",
                                           "tiny-qwen2-moe", "tiny-mixtral", "tiny-gemma4-experts",
                                           "tiny-gpt-oss", "tiny-gpt-oss-mxfp4", "tiny-glm4-moe",
                                           "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4",
                                           "llama4-quark-fp8", "llama4-modelopt-nvfp4",
                                           "tiny-qwen3-moe-w4a16", "tiny-qwen3-moe-gptq"),
                         TestName);

// Inputs and the cache are rounded to E4M3, as the checkpoint specifies. Before this rounding,
// values are BF16 on the device and F32 in the golden files. E4M3 codes are 1/16 apart, so about
// one in fifty values rounds to a neighbouring code; the next layer's inputs then differ by a
// percent, and more of its values round differently. After a few layers the rounding errors are
// unrelated to the golden ones, but of the same size: without any rounding the difference is 0.16
// (0.4 with experts). Measured: at most 0.143 and 0.247.
void ExpectRounded(const char* name, double tolerance) {
  const std::filesystem::path folder = DataFolder(name);
  DeviceRunner device(folder,
                      GoldenOptions(ElementType::kF8E4M3, ModelOptions::ActivationRounding::kAuto));
  std::vector<double> all;
  for (const GoldenCase& golden : testing::ReadGolden(folder / "golden_fakequant.json")) {
    const std::vector<double> rms =
        testing::RmsOfPositions(golden, device.runner().RunAlone(golden.prompt, 64));
    all.insert(all.end(), rms.begin(), rms.end());
  }
  ASSERT_GE(all.size(), 7u);
  std::ranges::sort(all);
  EXPECT_LE(all[all.size() / 2], tolerance);
}

TEST(DeviceRoundedInputsTest, HeavyStaysAsNearAsItsRoundingErrors) {
  ExpectRounded("qwen3-modelopt-fp8", 0.16);
  ExpectRounded("llama4-quark-fp8", 0.3);
}

// With a prompt of one token, errors do not average out over positions. Measured: 0.093 with the
// checkpoint's rounding of inputs, 0.138 without.
TEST(DeviceRoundedInputsTest, HeavyIsNearerWithTheCheckpointsRoundingThanWithout) {
  const std::filesystem::path folder = DataFolder("qwen3-modelopt-fp8");
  const std::vector<GoldenCase> cases = testing::ReadGolden(folder / "golden_fakequant.json");
  std::vector<double> rms;
  for (const auto rounding :
       {ModelOptions::ActivationRounding::kCheckpoint, ModelOptions::ActivationRounding::kBf16}) {
    DeviceRunner device(folder, GoldenOptions(ElementType::kF8E4M3, rounding));
    rms.push_back(testing::WorstRms(cases[0], device.runner().RunAlone(cases[0].prompt, 64)));
  }
  EXPECT_LT(rms[0], 0.8 * rms[1]);
}

// MXFP4 codes are up to 1/2 apart, so each rounding to another code than in the golden files
// changes much. A prompt of one token has few roundings. Measured: 0.005 with the checkpoint's
// rounding of inputs, 1.41 without.
TEST(DeviceRoundedInputsTest, HeavyIsThatOfTheCheckpointWithMxF4) {
  const std::filesystem::path folder = DataFolder("qwen3-moe-quark-mxfp4");
  const std::vector<GoldenCase> cases = testing::ReadGolden(folder / "golden_fakequant.json");
  ASSERT_EQ(cases[0].prompt.size(), 1u);
  std::vector<double> rms;
  for (const auto rounding :
       {ModelOptions::ActivationRounding::kCheckpoint, ModelOptions::ActivationRounding::kBf16}) {
    DeviceRunner device(folder, GoldenOptions(ElementType::kBF16, rounding));
    rms.push_back(testing::WorstRms(cases[0], device.runner().RunAlone(cases[0].prompt, 64)));
  }
  RecordProperty("rms", fmt::format("{:.4f}", rms[0]));
  EXPECT_LE(rms[0], 0.03);
  EXPECT_GT(rms[1], 0.5);
}

}  // namespace
}  // namespace sluice
