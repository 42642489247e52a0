// Tests adapters on the emulated device: against peft, mixed in a step, with several ranks, and
// while adapters are loaded.
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/device/device_lora.h"
#include "models/device/device_model_testing.h"
#include "models/device/device_ranks_testing.h"
#include "models/golden_testing.h"
#include "models/lora_testing.h"

namespace sluice {
namespace {

using testing::AdapterFolder;
using testing::DataFolder;
using testing::DeviceOptions;
using testing::DeviceRanksRunner;
using testing::DeviceRunner;
using testing::Fill;
using testing::GoldenCase;
using ::testing::HasSubstr;
using testing::LogitRows;
using testing::Runner;
using testing::SomeTokens;

ModelOptions LoraModelOptions(int64_t max_rank = 8) {
  ModelOptions options = DeviceOptions();
  options.max_slices = 4;
  options.lora = {.num_slots = 3,
                  .max_rank = max_rank,
                  .type = ElementType::kBF16,
                  .target_modules = {},
                  .experts = true};
  return options;
}

struct DeviceAdapter {
  const char* adapter;
  const char* base;
  double tolerance = 0.06;  // the bound of LoraGoldenTest
  ModelOptions::ActivationRounding rounding = ModelOptions::ActivationRounding::kBf16;
};

class DeviceLoraGoldenTest : public ::testing::TestWithParam<DeviceAdapter> {};

// With experts, or if inputs are rounded to E4M3, compares the median over all positions, as
// DeviceExpertsTest does. peft does not round inputs. Measured with rounding: 0.22.
TEST_P(DeviceLoraGoldenTest, HeavyStaysNearPeft) {
  const std::filesystem::path adapter = AdapterFolder(GetParam().adapter);
  ModelOptions options = LoraModelOptions();
  options.activation_format = GetParam().rounding;
  DeviceRunner device(DataFolder(GetParam().base), options);
  Fill(device.runner(), 2, adapter);
  std::vector<double> with, without;
  for (const GoldenCase& golden : testing::ReadGolden(adapter / "golden.json")) {
    const auto add = [&](std::vector<double>& all, int32_t slot) {
      const std::vector<double> rms =
          testing::RmsOfPositions(golden, device.runner().RunAlone(golden.prompt, 64, slot));
      all.insert(all.end(), rms.begin(), rms.end());
    };
    add(with, 2);
    add(without, -1);
  }
  std::ranges::sort(with);
  std::ranges::sort(without);
  const bool has_experts =
      LoadModelConfig(DataFolder(GetParam().base))->spec.FirstMoeLayer() != nullptr;
  const bool is_rounded = GetParam().rounding != ModelOptions::ActivationRounding::kBf16;
  const double middle = with[with.size() / 2];
  const double found = has_experts || is_rounded ? middle : with.back();
  RecordProperty("rms", fmt::format("{:.4f}", found));
  EXPECT_LE(found, GetParam().tolerance);
  EXPECT_GE(without[without.size() / 2], 2 * middle) << "the adapter makes a difference";
}

INSTANTIATE_TEST_SUITE_P(
    Adapters, DeviceLoraGoldenTest,
    ::testing::Values(DeviceAdapter{"qwen3-linear", "qwen3-bf16"},
                      DeviceAdapter{"qwen3-stabilized", "qwen3-bf16"},
                      DeviceAdapter{"llama-vocabulary", "llama-bf16"},
                      DeviceAdapter{"gemma3-linear", "tiny-gemma3"},
                      DeviceAdapter{"gemma4-linear", "tiny-gemma4-shared"},
                      DeviceAdapter{"gemma4-experts", "tiny-gemma4-experts"},
                      DeviceAdapter{"gemma4-router", "tiny-gemma4-experts"},
                      DeviceAdapter{"qwen2-moe-gates", "tiny-qwen2-moe"},
                      DeviceAdapter{"qwen3-moe-attention", "tiny-qwen3-moe-mixed"},
                      DeviceAdapter{"qwen3-moe-experts", "tiny-qwen3-moe-mixed"},
                      DeviceAdapter{"qwen3-moe-each", "tiny-qwen3-moe-mixed"},
                      DeviceAdapter{"gpt-oss-experts", "tiny-gpt-oss"},
                      DeviceAdapter{"qwen3-fp8", "qwen3-modelopt-fp8"},
                      DeviceAdapter{"qwen3-fp8", "qwen3-modelopt-fp8", 0.3,
                                    ModelOptions::ActivationRounding::kAuto}),
    [](const ::testing::TestParamInfo<DeviceAdapter>& info) {
      std::string name = info.param.adapter;
      std::replace(name.begin(), name.end(), '-', '_');
      if (info.param.rounding == ModelOptions::ActivationRounding::kAuto) name += "_rounded";
      return name;
    });

// A step may mix rows of several adapters with rows without an adapter. The logits equal those of
// each adapter in a separate step, and those of a model without slots. The second adapter may be of
// another kind.
void ExpectSameInCompany(const char* base, const char* first, const char* second) {
  const std::vector<int32_t> prompt = SomeTokens(21, 3), other = SomeTokens(13, 4);
  ModelOptions plain_options = LoraModelOptions();
  plain_options.lora = {};
  DeviceRunner plain(DataFolder(base), plain_options);
  const LogitRows without = plain.runner().RunAlone(prompt, 64);
  DeviceRunner device(DataFolder(base), LoraModelOptions());
  Runner& runner = device.runner();
  Fill(runner, 0, AdapterFolder(first));
  Fill(runner, 2, AdapterFolder(second));
  EXPECT_EQ(runner.RunAlone(prompt, 64), without) << "the slots alone change nothing";
  const LogitRows with = runner.RunAlone(prompt, 64, 0);
  const LogitRows other_alone = runner.RunAlone(other, 64, 2);
  EXPECT_NE(with, without);
  EXPECT_EQ(runner.RunAlone(prompt, 5, 0), with) << "in chunks";
  for (int sequence = 0; sequence < 4; ++sequence) runner.Forget(sequence);
  const auto together =
      runner.RunStep({{0, prompt, 0}, {1, prompt, -1}, {2, other, 2}, {3, prompt, 0}});
  EXPECT_EQ(together[0], with);
  EXPECT_EQ(together[1], without);
  EXPECT_EQ(together[2], other_alone);
  EXPECT_EQ(together[3], with);
}

// Graphs are captured without adapters. Steps that use an adapter are not replayed; other steps
// give the same results as without graphs.
TEST(DeviceLora, RecordedStepsAreThoseWithoutAdapters) {
  DeviceRunner eager(DataFolder("qwen3-bf16"), LoraModelOptions());
  DeviceRunner replaying(DataFolder("qwen3-bf16"), LoraModelOptions());
  Model& model = replaying.runner().model();
  for (DeviceRunner* device : {&eager, &replaying})
    Fill(device->runner(), 1, AdapterFolder("qwen3-linear"));
  ASSERT_TRUE(model.RecordSteps({.sequences = {3}}, replaying.runner().cache()));
  const auto both = [&](const std::vector<Runner::Part>& parts) {
    EXPECT_TRUE(eager.runner().RunStep(parts) == replaying.runner().RunStep(parts)) << parts.size();
  };
  both({{0, SomeTokens(9, 1), 1}, {1, SomeTokens(20, 2)}});
  both({{0, {5}, 1}, {1, {6}}});
  EXPECT_EQ(model.num_replayed(), 0);
  both({{1, {7}}});
  EXPECT_EQ(model.num_replayed(), 1);
  both({{0, {8}, 1}});
  both({{1, {9}}});
  EXPECT_EQ(model.num_replayed(), 2);
}

TEST(DeviceLoraPromiseTest, HeavyASequenceHasTheSameBitsInAnyCompany) {
  ExpectSameInCompany("qwen3-bf16", "qwen3-linear", "qwen3-stabilized");
}
TEST(DeviceLoraPromiseTest, HeavySoHasOneWithExperts) {
  ExpectSameInCompany("tiny-qwen3-moe-mixed", "qwen3-moe-experts", "qwen3-moe-attention");
}
TEST(DeviceLoraPromiseTest, HeavySoHasOneThatChoosesExperts) {
  ExpectSameInCompany("tiny-qwen2-moe", "qwen2-moe-gates", "qwen2-moe-gates");
}
TEST(DeviceLoraPromiseTest, HeavySoHasOneWithEmbeddingAndHead) {
  ExpectSameInCompany("llama-bf16", "llama-vocabulary", "llama-vocabulary");
}

// Models with fused q, k and v, and fused gate and up, are as close to the CPU as bases without
// adapters.
TEST(DeviceLoraAgainstCpuTest, HeavyFusedLayersAgree) {
  const std::vector<int32_t> prompt = SomeTokens(30, 5);
  ModelOptions options = LoraModelOptions();
  Runner cpu(DataFolder("tiny-phi3-long"), options, 2);
  Fill(cpu, 1, AdapterFolder("phi3-fused"));
  DeviceRunner device(DataFolder("tiny-phi3-long"), options);
  Fill(device.runner(), 1, AdapterFolder("phi3-fused"));
  const LogitRows expected = cpu.RunAlone(prompt, 64, 1);
  const LogitRows got = device.runner().RunAlone(prompt, 64, 1);
  const LogitRows without = cpu.RunAlone(prompt, 64);
  double squares = 0, change = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    const std::vector<double> a = testing::LogSoftmax(got[row]),
                              b = testing::LogSoftmax(expected[row]),
                              c = testing::LogSoftmax(without[row]);
    for (size_t i = 0; i < a.size(); ++i) {
      squares += (a[i] - b[i]) * (a[i] - b[i]);
      change += (c[i] - b[i]) * (c[i] - b[i]);
    }
  }
  const double count = static_cast<double>(got.size() * got.front().size());
  const double rms = std::sqrt(squares / count);
  RecordProperty("rms", fmt::format("{:.4f}", rms));
  EXPECT_LE(rms, 0.06);
  EXPECT_GE(std::sqrt(change / count), 3 * rms) << "the adapter makes a difference";
}

// After the last attention, only rows whose logits are wanted are kept.
TEST(DeviceLoraTest, RowsWhoseLogitsAreWantedHaveTheirOwnAdapters) {
  DeviceRunner device(DataFolder("llama-bf16"), LoraModelOptions());
  Runner& runner = device.runner();
  Fill(runner, 1, AdapterFolder("llama-vocabulary"));
  const std::vector<int32_t> prompt = SomeTokens(9, 6);
  const LogitRows with = runner.RunAlone(prompt, 64, 1), without = runner.RunAlone(prompt, 64);
  std::vector<int32_t> tokens, positions;
  std::vector<kernels::AttentionSlice> slices;
  const std::vector<int32_t> tables[] = {runner.BlockTable(0), runner.BlockTable(1)};
  for (int sequence = 0; sequence < 2; ++sequence) {
    slices.push_back({std::ssize(tokens), 9, 0, tables[sequence].data()});
    for (int32_t i = 0; i < 9; ++i) positions.push_back(i);
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  }
  const std::vector<int32_t> rows = {4, 8, 17}, adapters = {-1, 1};
  const auto words = with.front().size();
  std::vector<float> logits(rows.size() * words);
  StepInput input{tokens, positions, slices, rows};
  input.adapters = adapters;
  runner.model().Forward(runner.pool(), input, runner.cache(), logits.data());
  const auto row = [&](size_t i) {
    return std::vector<float>(logits.begin() + static_cast<ptrdiff_t>(i * words),
                              logits.begin() + static_cast<ptrdiff_t>((i + 1) * words));
  };
  EXPECT_EQ(row(0), without[4]);
  EXPECT_EQ(row(1), without[8]);
  EXPECT_EQ(row(2), with[8]);
}

// The new content of a slot must not depend on its old content.
TEST(DeviceLoraTest, ASlotIsFilledAgain) {
  DeviceRunner device(DataFolder("qwen3-bf16"), LoraModelOptions());
  Runner& runner = device.runner();
  const std::vector<int32_t> prompt = SomeTokens(6, 7);
  Fill(runner, 0, AdapterFolder("qwen3-stabilized"));
  const LogitRows expected = runner.RunAlone(prompt, 64, 0);
  Fill(runner, 1, AdapterFolder("qwen3-linear"));
  EXPECT_NE(runner.RunAlone(prompt, 64, 1), expected);
  Fill(runner, 1, AdapterFolder("qwen3-stabilized"));
  EXPECT_EQ(runner.RunAlone(prompt, 64, 1), expected);
}

// Situation: the engine ends a sequence while a step in flight computes one more token of that
// sequence.
TEST(DeviceLoraTest, ASlotIsFilledWhenNoStepUsesIt) {
  DeviceRunner device(DataFolder("qwen3-bf16"), LoraModelOptions());
  Runner& runner = device.runner();
  Fill(runner, 0, AdapterFolder("qwen3-linear"));
  const std::vector<int32_t> tokens = {3}, positions = {0}, rows = {0}, adapters = {0};
  const std::vector<int32_t> table = runner.BlockTable(0);
  const std::vector<kernels::AttentionSlice> slices = {{0, 1, 0, table.data()}};
  const LogitRows expected = runner.RunAlone(tokens, 1, 0);
  std::vector<float> logits(expected.front().size());
  StepInput input{tokens, positions, slices, rows};
  input.adapters = adapters;
  runner.model().Begin(runner.pool(), input, runner.cache(), logits.data());
  std::thread other([&] { Fill(runner, 0, AdapterFolder("qwen3-stabilized")); });
  // This runs before or after the Fill of the other thread.
  Fill(runner, 1, AdapterFolder("qwen3-stabilized"));
  runner.model().Finish(runner.pool());
  other.join();
  EXPECT_EQ(logits, expected.front());
  EXPECT_EQ(runner.RunAlone(tokens, 1, 0), runner.RunAlone(tokens, 1, 1));
}

TEST(DeviceLoraTest, WhatEndsRefusesAdapters) {
  std::shared_ptr<LoraStore> slots;
  {
    DeviceRunner device(DataFolder("qwen3-bf16"), LoraModelOptions());
    slots = device.runner().model().lora();
    EXPECT_GT(device.memory().lora_bytes, 0);
  }
  const auto adapter = LoraAdapter::Open(AdapterFolder("qwen3-linear"), slots->layout());
  ASSERT_TRUE(adapter);
  const Status filled = slots->Fill(0, *adapter);
  ASSERT_FALSE(filled);
  EXPECT_EQ(filled.error().code, ErrorCode::kUnavailable);
}

// A failed copy is reported, and the next one works.
TEST(DeviceLoraTest, AFailedCopyIsTold) {
  DeviceRunner device(DataFolder("qwen3-bf16"), LoraModelOptions());
  Runner& runner = device.runner();
  const std::shared_ptr<LoraStore> slots = runner.model().lora();
  const auto adapter = LoraAdapter::Open(AdapterFolder("qwen3-linear"), slots->layout());
  ASSERT_TRUE(adapter);
  device.device().FailNextCopy();
  const Status filled = slots->Fill(0, *adapter);
  ASSERT_FALSE(filled);
  EXPECT_THAT(filled.error().message, HasSubstr("injected"));
  EXPECT_TRUE(slots->Fill(0, *adapter));
}

TEST(DeviceLoraTest, FactorsInFloat32AreRefusedByName) {
  ModelOptions options = LoraModelOptions();
  options.lora.type = ElementType::kF32;
  const auto config = LoadModelConfig(DataFolder("qwen3-bf16"));
  ASSERT_TRUE(config);
  const EmulatedDevice device(EmulatedDeviceOptions{});
  const auto plan = PlanDeviceModel(*config, options, device.info());
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("--lora-dtype bfloat16"));
}

// Each rank has its own rows of B, so that no sum is split between ranks.
class DeviceLoraRanksTest : public ::testing::TestWithParam<DeviceAdapter> {};

TEST_P(DeviceLoraRanksTest, HeavyEveryCutIsBitEqual) {
  ModelOptions options = LoraModelOptions();
  options.max_rows = options.max_logit_rows = options.max_context = 32;
  const std::filesystem::path folder = AdapterFolder(GetParam().adapter);
  const std::vector<int32_t> prompt = SomeTokens(11, 8);
  const auto run = [&](Runner& runner) {
    for (int sequence = 0; sequence < 3; ++sequence) runner.Forget(sequence);
    return runner.RunStep({{0, prompt, 1}, {1, {5, 6}, -1}, {2, prompt, 1}});
  };
  DeviceRunner alone(DataFolder(GetParam().base), options);
  Fill(alone.runner(), 1, folder);
  const std::vector<LogitRows> expected = run(alone.runner());
  const DecoderSpec spec = LoadModelConfig(DataFolder(GetParam().base))->spec;
  for (const testing::DeviceCut& cut : {testing::DeviceCut{2, 1}, {3, 1}, {1, 2}}) {
    if (cut.tensor_size > spec.layers.front().attention.num_heads) continue;
    DeviceRanksRunner ranks(GetParam().base, options, cut);
    ASSERT_FALSE(HasFailure());
    Fill(ranks.runner(), 1, folder);
    EXPECT_EQ(run(ranks.runner()), expected)
        << "tp " << cut.tensor_size << " pp " << cut.num_stages;
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, DeviceLoraRanksTest,
                         ::testing::Values(DeviceAdapter{"qwen3-linear", "qwen3-bf16"},
                                           DeviceAdapter{"llama-vocabulary", "llama-bf16"},
                                           DeviceAdapter{"qwen3-moe-experts",
                                                         "tiny-qwen3-moe-mixed"},
                                           DeviceAdapter{"gpt-oss-experts", "tiny-gpt-oss"},
                                           DeviceAdapter{"qwen2-moe-gates", "tiny-qwen2-moe"},
                                           DeviceAdapter{"gemma4-experts", "tiny-gemma4-experts"}),
                         [](const ::testing::TestParamInfo<DeviceAdapter>& info) {
                           std::string name = info.param.adapter;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice
