#include "simulation/step_clock.h"

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "models/model_config.h"

namespace sluice {
namespace {

constexpr double kTera = 1e12;

ModelConfig PublishedConfig(const std::string& name) {
  return *LoadModelConfig(SourcePath("tests/data/simulation/" + name));
}

StepCosts CostsOf(const std::string& name, int tensor_size = 1, int num_stages = 1) {
  ModelOptions options;
  options.kv_type = ElementType::kF8E4M3;
  auto costs = StepCostsOf(PublishedConfig(name), options, tensor_size, num_stages);
  EXPECT_TRUE(costs) << costs.error().message;
  return *std::move(costs);
}

StepClock ClockOf(const std::string& name, int tensor_size = 1, int num_stages = 1) {
  return {FindDevices("H200")->device, CostsOf(name, tensor_size, num_stages)};
}

double AmountOf(const StepClock& clock, StepPart part, const std::vector<SliceLoad>& slices) {
  return clock.AmountsOf(slices)[static_cast<size_t>(part)];
}

TEST(StepCosts, ASingleDeviceReads70GBOfLlama70BInFp8) {
  const StepClock clock = ClockOf("llama-70b-fp8");
  // 68.45e9 weights of one byte each, and a head of 1.05e9 BF16 elements.
  EXPECT_NEAR(AmountOf(clock, StepPart::kWeights, {{1000, 1, 1}}) * 4.8 * kTera, 70.55e9, 0.2e9);
  // Keys and values of 163,840 bytes per token.
  EXPECT_NEAR(AmountOf(clock, StepPart::kCache, {{999, 1, 1}}) * 4.8 * kTera, 1000 * 163840., 1e3);
  // 2 operations per weight, at the FP8 rate.
  EXPECT_NEAR(AmountOf(clock, StepPart::kProducts, {{0, 1000, 0}}) * 1979 * kTera, 136.9e12, 1e12);
  // 4 x 80 x 8192 operations per position that a token sees.
  EXPECT_NEAR(AmountOf(clock, StepPart::kAttention, {{999, 1, 1}}) * 989 * kTera, 2.62e9, 0.01e9);
  EXPECT_EQ(AmountOf(clock, StepPart::kLayers, {{0, 1, 1}}), 80);
  EXPECT_EQ(AmountOf(clock, StepPart::kLinkWaits, {{0, 1, 1}}), 0);
}

TEST(StepCosts, NarrowWeightsAreRead) {
  EXPECT_NEAR(AmountOf(ClockOf("llama-70b-nvfp4"), StepPart::kWeights, {{0, 1, 1}}) * 4.8 * kTera,
              40.6e9, 0.3e9);
  EXPECT_NEAR(AmountOf(ClockOf("llama-70b-bf16"), StepPart::kWeights, {{0, 1, 1}}) * 4.8 * kTera,
              139.0e9, 0.3e9);
}

TEST(StepCosts, RanksShareWeightsAndHeads) {
  const StepClock one = ClockOf("llama-70b-fp8"), four = ClockOf("llama-70b-fp8", 4);
  for (const StepPart part : {StepPart::kWeights, StepPart::kCache, StepPart::kProducts}) {
    EXPECT_NEAR(4 * AmountOf(four, part, {{500, 3, 1}}), AmountOf(one, part, {{500, 3, 1}}),
                0.02 * AmountOf(one, part, {{500, 3, 1}}));
  }
  EXPECT_EQ(AmountOf(four, StepPart::kLinkWaits, {{0, 1, 1}}), 160);
  // A ring: each rank sends 3/2 of 160 rows of 8192 BF16 numbers.
  EXPECT_NEAR(AmountOf(four, StepPart::kLinkBytes, {{0, 2, 1}}) * 450e9, 2 * 160 * 16384 * 1.5, 1);
}

TEST(StepCosts, StagesAddUp) {
  const StepClock one = ClockOf("llama-70b-fp8"), two = ClockOf("llama-70b-fp8", 1, 2);
  EXPECT_NEAR(two.SecondsOf(std::vector<SliceLoad>{{500, 3, 1}}),
              one.SecondsOf(std::vector<SliceLoad>{{500, 3, 1}}), 1e-4);
}

TEST(StepClock, APromptInTwoChunksAttendsToAsMuch) {
  const StepClock clock = ClockOf("llama-70b-fp8");
  EXPECT_NEAR(AmountOf(clock, StepPart::kAttention, {{0, 1000, 0}}),
              AmountOf(clock, StepPart::kAttention, {{0, 600, 0}}) +
                  AmountOf(clock, StepPart::kAttention, {{600, 400, 0}}),
              1e-12);
}

TEST(StepClock, NothingTakesNoTime) {
  EXPECT_EQ(ClockOf("llama-70b-fp8").SecondsOf({}), 0);
}

TEST(StepCosts, TooManyRanksAreRefused) {
  EXPECT_FALSE(StepCostsOf(PublishedConfig("llama-70b-fp8"), {}, 1, 81));
}

}  // namespace
}  // namespace sluice
