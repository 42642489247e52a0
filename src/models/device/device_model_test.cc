// Compares models on the emulated device with the CPU's.
#include "models/device/device_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "kernels/cuda/device_kernel_tables.h"
#include "models/device/device_executor.h"
#include "models/device/device_model_testing.h"
#include "models/program/build_decoder.h"

namespace sluice {
namespace {

using testing::CheckpointName;
using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRunner;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

// Returns the median over rows of the root mean square difference of log probabilities.
double MiddleDifference(const LogitRows& a, const LogitRows& b) {
  std::vector<double> rms;
  for (size_t row = 0; row < a.size(); ++row) {
    const std::vector<double> x = testing::LogSoftmax(a[row]), y = testing::LogSoftmax(b[row]);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
    rms.push_back(std::sqrt(sum / static_cast<double>(x.size())));
  }
  std::ranges::sort(rms);
  return rms[rms.size() / 2];
}

// Runs a kernel that writes `more` elements past the end of its workspace array, into the next one.
TEST(DeviceModelDeathTest, FindsAKernelThatLeavesItsArray) {
  const auto config = LoadModelConfig(DataFolder("llama-bf16"));
  ASSERT_TRUE(config);
  const ModelOptions options = DeviceOptions();
  const auto run = [&](int64_t more) {
    EmulatedDevice device(testing::kArraysApart);
    DecoderWeights weights;
    ListParameters(config->spec, weights);
    const program::DeviceTarget target;
    const program::Program program = program::BuildDecoder(
        {.spec = config->spec, .options = options, .device = &target, .weights = weights});
    const auto plan = DevicePlan::For(program, /*keeps_apart=*/true);
    auto pool = DevicePool::Allocate(device, plan.total_bytes, "a model");
    ASSERT_TRUE(pool);
    const auto memory = pool->Take(plan.total_bytes, "the workspace", plan.gaps);
    ASSERT_TRUE(memory);
    const auto offset_of = [&](const char* name) {
      return plan.offsets[static_cast<size_t>(program::FindBuffer(program, name))];
    };
    auto* const residual =
        reinterpret_cast<float*>(static_cast<std::byte*>(*memory) + offset_of("residual"));
    const int64_t count = options.max_rows * config->spec.hidden_size;
    EXPECT_GE(offset_of("delta") - offset_of("residual"), count * 4 + DevicePool::kAlignment);
    auto stream = device.CreateStream();
    ASSERT_TRUE(stream);
    device::KernelsOf(DeviceKind::kEmulated)
        .cap_logits((*stream)->handle(), {.x = residual, .count = count + more, .cap = 1});
    EXPECT_TRUE((*stream)->Synchronize());
  };
  run(0);
  EXPECT_DEATH(run(1), "behind array 0 of the workspace was written|use-after-poison");
}

// Compares every family and format on both backends; each backend loads its own weights. Compares
// the median of all rows, because with experts, single rows may choose another expert. Measured: at
// most 0.02.
class DeviceAgainstCpuTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceAgainstCpuTest, HeavyLogitsAgree) {
  ModelOptions options = DeviceOptions();
  options.activation_format = ModelOptions::ActivationRounding::kBf16;
  const std::vector<int32_t> tokens = SomeTokens(40, 2);
  const auto folder = DataFolder(GetParam());
  DeviceRunner device(folder, options, testing::kArraysShared);
  const double difference = MiddleDifference(device.runner().RunAlone(tokens, 40),
                                             Runner(folder, options, 2).RunAlone(tokens, 40));
  RecordProperty("difference", fmt::format("{:.4f}", difference));
  EXPECT_LE(difference, 0.03);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceAgainstCpuTest,
    ::testing::Values("llama-bf16", "llama-tied-bf16-sharded", "qwen3-bf16", "tiny-mistral-window",
                      "tiny-qwen2-window", "tiny-llama4-mixed", "tiny-qwen3-moe-mixed",
                      "tiny-gemma4-experts", "tiny-gpt-oss", "tiny-gpt-oss-mxfp4", "tiny-gemma2",
                      "qwen3-modelopt-fp8", "qwen3-llmc-fp8-block", "qwen3-llmc-int8-w8a8",
                      "qwen3-moe-llmc-nvfp4", "qwen3-moe-quark-mxfp4", "llama4-quark-fp8",
                      "llama4-modelopt-nvfp4", "tiny-qwen3-w4a16", "tiny-qwen3-w4a16-gptq",
                      "tiny-qwen3-w4a16-actorder", "tiny-qwen3-moe-w4a16", "tiny-qwen3-awq",
                      "tiny-qwen3-gptq", "tiny-qwen3-moe-gptq"),
    CheckpointName);

TEST(DeviceModelTest, WeightsRoundedWhileLoadingAreThoseOfTheCpu) {
  for (const char* word : {"fp8", "fp8_per_block", "mxfp4"}) {
    const LoadQuantization quantization{word, ""};
    ModelOptions options = DeviceOptions();
    options.activation_format = ModelOptions::ActivationRounding::kBf16;
    const std::vector<int32_t> tokens = SomeTokens(20, 3);
    const auto folder = DataFolder("llama-bf16");
    const auto config = LoadModelConfig(folder, {}, quantization);
    ASSERT_TRUE(config) << config.error().message;
    const LogitRows cpu = Runner(folder, *config, options, 2).RunAlone(tokens, 20);
    const LogitRows plain = Runner(folder, options, 2).RunAlone(tokens, 20);
    DeviceRunner device(folder, options, {}, quantization);
    const LogitRows found = device.runner().RunAlone(tokens, 20);
    EXPECT_LT(MiddleDifference(found, cpu), 0.02) << word;
    EXPECT_GT(MiddleDifference(found, plain), 2 * MiddleDifference(found, cpu)) << word;
  }
}

// Hidden states and scores of a model with an untied head and of one with a tied head.
TEST(DeviceModelTest, HiddenStatesAndScoresAreNearTheCpus) {
  HeadSpec none, scores;
  none.kind = HeadSpec::Kind::kNone;
  scores.kind = HeadSpec::Kind::kScores;
  scores.num_scores = 2;
  scores.tokens = {3, 77};
  for (const char* name : {"qwen3-bf16", "llama-tied-bf16-sharded", "qwen3-llmc-fp8-block"}) {
    for (const HeadSpec& head : {none, scores}) {
      auto config = LoadModelConfig(DataFolder(name));
      ASSERT_TRUE(config);
      config->spec.head = head;
      const int64_t width = config->spec.ResultSize();
      Runner cpu(DataFolder(name), *config, DeviceOptions(), 1);
      const std::vector<float> expected = cpu.ResultsOfRows(SomeTokens(40, 5), width);
      DeviceRunner device(DataFolder(name), DeviceOptions(), {}, {}, head);
      EXPECT_FALSE(device.runner().model().draws_tokens());
      const std::vector<float> got = device.runner().ResultsOfRows(SomeTokens(40, 5), width);
      ASSERT_EQ(got.size(), expected.size());
      double dot = 0, of_got = 0, of_expected = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        dot += double{got[i]} * expected[i];
        of_got += double{got[i]} * got[i];
        of_expected += double{expected[i]} * expected[i];
      }
      EXPECT_GT(dot / std::sqrt(of_got * of_expected), 0.999) << name << ", " << width;
      EXPECT_NEAR(std::sqrt(of_got / of_expected), 1, 0.02) << name << ", " << width;
      EXPECT_EQ(device.runner().ResultsOfRows(SomeTokens(40, 5), width), got) << "a second time";
    }
  }
}

struct RoundedCase {
  const char* name;
  ModelOptions::LoadFormat load_format = ModelOptions::LoadFormat::kAuto;
};

// The device's results with rounded inputs are nearer to the CPU's with rounded inputs than the
// CPU's without rounding are. Random weights have a single input scale for all experts, so experts'
// inputs are also rounded.
class DeviceRoundedInputsTest : public ::testing::TestWithParam<RoundedCase> {};

TEST_P(DeviceRoundedInputsTest, HeavyStayNearTheCpu) {
  ModelOptions options = DeviceOptions();
  const bool is_dummy = GetParam().load_format == ModelOptions::LoadFormat::kDummy;
  options.load_format = GetParam().load_format;
  options.activation_format = ModelOptions::ActivationRounding::kCheckpoint;
  const auto folder = DataFolder(GetParam().name);
  const std::vector<int32_t> tokens = SomeTokens(60, 3);
  DeviceRunner device(folder, options);
  const LogitRows got = device.runner().RunAlone(tokens, tokens.size());
  const auto on_cpu = [&] {
    if (is_dummy) return Runner(*LoadModelConfig(folder), options, 2).RunAlone(tokens, 60);
    return Runner(folder, options, 2).RunAlone(tokens, 60);
  };
  const LogitRows rounded = on_cpu();
  options.activation_format = ModelOptions::ActivationRounding::kBf16;
  const LogitRows plain = on_cpu();
  const double near = MiddleDifference(got, rounded), far = MiddleDifference(plain, rounded);
  RecordProperty("near", fmt::format("{:.4f}", near));
  RecordProperty("far", fmt::format("{:.4f}", far));
  EXPECT_LT(near, far);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceRoundedInputsTest,
    ::testing::Values(RoundedCase{.name = "llama4-quark-fp8",
                                  .load_format = ModelOptions::LoadFormat::kDummy},
                      RoundedCase{.name = "qwen3-moe-llmc-nvfp4",
                                  .load_format = ModelOptions::LoadFormat::kDummy},
                      RoundedCase{.name = "qwen3-moe-llmc-nvfp4"}),
    [](const auto& info) {
      std::string name = info.param.name;
      if (info.param.load_format == ModelOptions::LoadFormat::kDummy) name += "-random";
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace sluice
