// Requests to a pooling model: each prompt gets a vector that depends neither on chunks nor on
// other requests or the prefix cache.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "base/source_path_testing.h"
#include "engine/engine_testing.h"

namespace sluice {
namespace {

using testing::CollectingSink;
using testing::FakeEngine;
using testing::FakeModel;
using testing::Json;

std::vector<int32_t> RandomPrompt(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(random() % 50));
  return prompt;
}

// Returns the vector that results from pooling the fake model's rows.
std::vector<float> Expected(const std::vector<int32_t>& prompt, PoolingMethod method) {
  std::vector<double> sum(FakeModel::kVocab);
  const size_t first = method == PoolingMethod::kLast ? prompt.size() : 1;
  const size_t last = method == PoolingMethod::kCls ? 1 : prompt.size();
  for (size_t length = first; length <= last; ++length) {
    float row[FakeModel::kVocab];
    FakeModel::Logits(std::span(prompt).first(length), row);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{row[i]};
  }
  std::vector<float> vector;
  for (const double x : sum)
    vector.push_back(static_cast<float>(x / static_cast<double>(last - first + 1)));
  return vector;
}

FakeEngine::Options OptionsOf(PoolingMethod method) {
  FakeEngine::Options options;
  options.pooling.emplace().method = method;
  return options;
}

class PoolingTest : public ::testing::TestWithParam<PoolingMethod> {};

TEST_P(PoolingTest, VectorsDependOnTheirPromptsAlone) {
  FakeEngine fake(OptionsOf(GetParam()));
  std::vector<std::vector<int32_t>> prompts;
  // Some prompts are longer than a step, which may return at most eight rows. Some prompts share
  // prefixes.
  for (uint32_t i = 0; i < 24; ++i) {
    prompts.push_back(RandomPrompt(i % 6 == 0 ? 200 : 1 + i * 7 % 60, i));
    if (i % 3 == 2)
      std::copy_n(prompts[0].begin(), std::min<size_t>(24, prompts[i].size()), prompts[i].begin());
  }
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int round = 0; round < 2; ++round) {
    for (const auto& prompt : prompts) {
      sinks.push_back(std::make_shared<CollectingSink>());
      ASSERT_TRUE(fake.Submit(prompt, testing::GreedyFor(1), sinks.back()));
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto& sink = sinks[static_cast<size_t>(round) * prompts.size() + i];
      ASSERT_TRUE(sink->WaitForEnd());
      ASSERT_TRUE(sink->pooled) << (sink->error ? sink->error->message : "no vector");
      EXPECT_EQ(*sink->pooled, Expected(prompts[i], GetParam())) << "prompt " << i;
      EXPECT_EQ(sink->num_updates, 0);
    }
  }
  EXPECT_TRUE(fake.WaitForIdle());
  EXPECT_EQ(fake.observer.finished, 48);
  EXPECT_EQ(fake.observer.generated_tokens, 0);
  EXPECT_EQ(fake.observer.prefix_hits > 0, GetParam() == PoolingMethod::kLast);
}

INSTANTIATE_TEST_SUITE_P(Methods, PoolingTest,
                         ::testing::Values(PoolingMethod::kLast, PoolingMethod::kCls,
                                           PoolingMethod::kMean));

TEST(PoolingEngineTest, PreemptedPromptsAreComputedAgain) {
  FakeEngine::Options options = OptionsOf(PoolingMethod::kMean);
  options.num_blocks = 60;
  FakeEngine fake(options);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (uint32_t i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(fake.Submit(RandomPrompt(150, i), testing::GreedyFor(1), sinks.back()));
  }
  for (uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(sinks[i]->WaitForEnd());
    ASSERT_TRUE(sinks[i]->pooled);
    EXPECT_EQ(*sinks[i]->pooled, Expected(RandomPrompt(150, i), PoolingMethod::kMean));
  }
}

TEST(PoolingEngineTest, APromptMayFillTheContext) {
  FakeEngine::Options options = OptionsOf(PoolingMethod::kLast);
  options.max_model_len = 20;
  FakeEngine fake(options);
  EXPECT_TRUE(fake.Ask(RandomPrompt(20, 1), testing::GreedyFor(1))->pooled);
  const auto sink = std::make_shared<CollectingSink>();
  const auto refused = fake.Submit(RandomPrompt(21, 1), testing::GreedyFor(1), sink);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("20 tokens, but the prompt has 21"));
  EXPECT_FALSE(fake.Submit(RandomPrompt(5, 1), testing::GreedyFor(1), sink, /*n=*/2));
}

TEST(PoolingEngineTest, AFailedStepFailsItsRequestsAlone) {
  FakeEngine fake(OptionsOf(PoolingMethod::kLast));
  EXPECT_TRUE(fake.Ask({1, FakeModel::kPoison}, testing::GreedyFor(1))->error);
  EXPECT_TRUE(fake.Ask({1, 2}, testing::GreedyFor(1))->pooled);
  EXPECT_TRUE(fake.WaitForIdle());
}

ModelConfig Qwen3() {
  auto config = LoadModelConfig(SourcePath("tests/data/checkpoints/qwen3-bf16"));
  EXPECT_TRUE(config);
  return *std::move(config);
}

PoolingOptions Asked(RunnerChoice runner, ConvertChoice convert, const char* pooler = "null") {
  PoolingOptions options;
  options.runner = runner;
  options.convert = convert;
  options.pooler = Json(pooler);
  return options;
}

TEST(ResolvePoolingTest, FollowsOptionsAndArchitecture) {
  const std::filesystem::path folder = SourcePath("tests/data/checkpoints/qwen3-bf16");
  ModelConfig model = Qwen3();
  EXPECT_FALSE(ResolvePooling({}, folder, model)->has_value());
  const auto resolve = [&](const PoolingOptions& options) {
    const auto resolved = ResolvePooling(options, folder, model);
    EXPECT_TRUE(resolved && *resolved);
    return resolved && *resolved ? **resolved : PoolingConfig();
  };
  const PoolingConfig embed = resolve(Asked(RunnerChoice::kPooling, ConvertChoice::kAuto));
  EXPECT_EQ(embed.method, PoolingMethod::kLast);
  EXPECT_EQ(embed.activation, PoolingActivation::kNormalize);
  EXPECT_EQ(model.spec.ResultSize(), model.hidden_size);
  const PoolingConfig mean = resolve(Asked(RunnerChoice::kAuto, ConvertChoice::kEmbed,
                                           R"({"pooling_type":"MEAN","normalize":false})"));
  EXPECT_EQ(mean.method, PoolingMethod::kMean);
  EXPECT_EQ(mean.activation, PoolingActivation::kNone);
  EXPECT_EQ(resolve(Asked(RunnerChoice::kAuto, ConvertChoice::kClassify)).activation,
            PoolingActivation::kSoftmax);
  EXPECT_EQ(model.spec.ResultSize(), 2);
}

TEST(ResolvePoolingTest, RefusesByName) {
  const std::filesystem::path folder = SourcePath("tests/data/checkpoints/qwen3-bf16");
  const auto message = [&](const PoolingOptions& options) {
    ModelConfig model = Qwen3();
    const auto resolved = ResolvePooling(options, folder, model);
    return resolved ? std::string() : resolved.error().message;
  };
  const auto pooler = [](const char* text) {
    return Asked(RunnerChoice::kPooling, ConvertChoice::kAuto, text);
  };
  EXPECT_THAT(message(pooler(R"({"pooling_type":"STEP"})")), ::testing::HasSubstr("STEP"));
  EXPECT_THAT(message(pooler(R"({"step_tag_id":3})")), ::testing::HasSubstr("step_tag_id"));
  EXPECT_THAT(message(pooler(R"({"normalize":"x"})")), ::testing::HasSubstr("normalize"));
  EXPECT_THAT(message(Asked(RunnerChoice::kAuto, ConvertChoice::kAuto, R"({"normalize":true})")),
              ::testing::HasSubstr("--runner pooling"));
  EXPECT_THAT(message(Asked(RunnerChoice::kGenerate, ConvertChoice::kEmbed)),
              ::testing::HasSubstr("contradict"));
  EXPECT_THAT(
      message(Asked(RunnerChoice::kAuto, ConvertChoice::kClassify, R"({"pooling_type":"MEAN"})")),
      ::testing::HasSubstr("MEAN"));
}

}  // namespace
}  // namespace sluice
