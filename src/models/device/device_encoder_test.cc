// Compares encoders on the emulated device with encoders on the CPU in F32, whose results equal
// those of transformers (tests/e2e/test_pooling.py), and with results from transformers itself.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/device/device_model_testing.h"
#include "models/golden_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;

// A text of a step. From token `second` on, tokens have type 1.
struct Text {
  std::vector<int32_t> ids;
  int32_t second = std::numeric_limits<int32_t>::max();
};

ModelOptions EncoderOptions(ElementType type) {
  ModelOptions options = testing::SmallOptions(type, type);
  options.max_rows = options.max_logit_rows = 192;
  options.max_context = 96;
  options.max_slices = 9;
  return options;
}

ModelConfig ConfigOf(const std::string& name, int64_t num_scores) {
  auto config = LoadModelConfig(DataFolder(name));
  EXPECT_TRUE(config) << (config ? "" : config.error().message);
  if (num_scores > 0)
    config->spec.head = {.kind = HeadSpec::Kind::kScores, .num_scores = num_scores};
  return *config;
}

// Returns the results of each text, either of all rows or of the first one.
std::vector<std::vector<float>> Run(Model& model, KvCache& cache, const ModelOptions& options,
                                    const std::vector<Text>& texts, bool all_rows) {
  std::vector<int32_t> tokens, positions, rows, seconds, counts;
  std::vector<kernels::AttentionSlice> slices;
  std::vector<std::vector<int32_t>> tables;
  // Blocks are assigned in descending order.
  int32_t block = static_cast<int32_t>(cache.num_blocks());
  for (const Text& text : texts) {
    std::vector<int32_t>& table = tables.emplace_back();
    for (size_t i = 0; i < text.ids.size(); i += static_cast<size_t>(options.block_size))
      table.push_back(--block);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto first = static_cast<int32_t>(tokens.size());
    const auto length = static_cast<int32_t>(texts[i].ids.size());
    slices.push_back({first, length, 0, tables[i].data()});
    seconds.push_back(texts[i].second);
    tokens.insert(tokens.end(), texts[i].ids.begin(), texts[i].ids.end());
    for (int32_t k = 0; k < length; ++k) positions.push_back(k);
    for (int32_t k = 0; k < (all_rows ? length : 1); ++k) rows.push_back(first + k);
    counts.push_back(all_rows ? length : 1);
  }
  StepInput input{tokens, positions, slices, rows};
  if (std::ranges::min(seconds) < std::numeric_limits<int32_t>::max()) input.second_texts = seconds;
  const int64_t width = model.config().spec.ResultSize();
  std::vector<float> results(rows.size() * static_cast<size_t>(width), -1e30f);
  ThreadPool pool(1);
  model.Forward(pool, input, cache, results.data());
  std::vector<std::vector<float>> of_texts;
  auto from = results.begin();
  for (const int32_t count : counts) {
    const auto end = from + count * width;
    of_texts.emplace_back(from, end);
    from = end;
  }
  return of_texts;
}

// An encoder on a device that has exactly the planned memory.
class OnDevice {
 public:
  explicit OnDevice(const std::string& name, int64_t num_scores = 0,
                    ElementType kv_type = ElementType::kBF16)
      : options_(EncoderOptions(ElementType::kBF16)) {
    options_.kv_type = kv_type;
    const ModelConfig config = ConfigOf(name, num_scores);
    const auto memory = PlanDeviceModel(config, options_, device_.info());
    EXPECT_TRUE(memory) << (memory ? "" : memory.error().message);
    constexpr int64_t kBlocks = 30;
    const int64_t kv_bytes = DevicePool::Padded(memory->kv_bytes_per_block * kBlocks);
    const int64_t model_bytes = memory->weight_bytes + memory->workspace_bytes;
    auto pool = DevicePool::Allocate(device_, model_bytes + kv_bytes, "a model");
    EXPECT_TRUE(pool) << (pool ? "" : pool.error().message);
    pool_ = std::make_unique<DevicePool>(*std::move(pool));
    ThreadPool threads(2);
    auto model = LoadDeviceModel(device_, *pool_, threads, DataFolder(name), config, options_);
    EXPECT_TRUE(model) << (model ? "" : model.error().message);
    model_ = *std::move(model);
    EXPECT_EQ(pool_->used_bytes(), model_bytes);
    cache_ =
        std::make_unique<KvCache>(KvCache::Wrap(KvLayoutOf(config, options_), memory->kv_groups,
                                                kBlocks, *pool_->Take(kv_bytes, "the KV cache")));
  }

  std::vector<std::vector<float>> Run(const std::vector<Text>& texts, bool all_rows = true) {
    return sluice::Run(*model_, *cache_, options_, texts, all_rows);
  }
  EmulatedDevice& device() { return device_; }

 private:
  ModelOptions options_;
  EmulatedDevice device_{testing::kArraysApart};
  std::unique_ptr<DevicePool> pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
};

std::vector<std::vector<float>> OnCpu(const std::string& name, const std::vector<Text>& texts,
                                      int64_t num_scores = 0, bool all_rows = true) {
  const ModelOptions options = EncoderOptions(ElementType::kF32);
  const ModelConfig config = ConfigOf(name, num_scores);
  ThreadPool pool(1);
  const auto model = LoadModel(pool, DataFolder(name), config, options);
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  auto cache = KvCache::Allocate(KvLayoutOf(config, options), KvGroups::Uniform(1), 30);
  EXPECT_TRUE(cache);
  return Run(**model, *cache, options, texts, all_rows);
}

std::vector<Text> SomeTexts(const std::vector<size_t>& lengths, int32_t vocabulary) {
  std::vector<Text> texts;
  uint64_t seed = 1;
  for (const size_t length : lengths) {
    Text& text = texts.emplace_back();
    for (const int32_t token : testing::SomeTokens(length, seed++))
      text.ids.push_back(token % vocabulary);
  }
  return texts;
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  const auto dot = [](std::span<const float> x, std::span<const float> y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

// Hidden states of encoders of each family.
class DeviceEncoderTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceEncoderTest, HeavyHiddenStatesAreNearlyTheCpus) {
  const std::vector<Text> texts = SomeTexts({1, 5, 17, 40, 90}, 60);
  const auto expected = OnCpu(GetParam(), texts);
  OnDevice device(GetParam());
  const auto together = device.Run(texts);
  const size_t width = expected[0].size();
  double least = 1;
  for (size_t text = 0; text < texts.size(); ++text) {
    ASSERT_EQ(together[text].size(), expected[text].size());
    for (size_t row = 0; row < texts[text].ids.size(); ++row) {
      const auto row_of = [&](const std::vector<float>& all) {
        return std::span(all).subspan(row * width, width);
      };
      least = std::min(least, Cosine(row_of(together[text]), row_of(expected[text])));
    }
    // Results are bit-identical when a text runs alone, and when only its first row is wanted.
    EXPECT_EQ(device.Run({texts[text]})[0], together[text]) << "text " << text << " alone";
    const auto first = device.Run({texts[text]}, /*all_rows=*/false)[0];
    EXPECT_TRUE(std::equal(first.begin(), first.end(), together[text].begin()));
  }
  RecordProperty("least_cosine", fmt::format("{:.6f}", least));
  EXPECT_GT(least, 0.9998);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceEncoderTest,
                         ::testing::Values("tiny-bert", "tiny-xlmr-score", "tiny-nomic",
                                           "tiny-gte-score", "tiny-modernbert"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(DeviceEncoder, HeavyScoresAreNearlyTheCpus) {
  const std::vector<Text> texts = SomeTexts({3, 9, 30, 70}, 60);
  for (const auto& [name, num_scores] : {std::pair{"tiny-bert-classes", 3},
                                         {"tiny-xlmr-score", 1},
                                         {"tiny-gte-score", 1},
                                         {"tiny-modernbert-score", 1}}) {
    const auto expected = OnCpu(name, texts, num_scores, /*all_rows=*/false);
    OnDevice device(name, num_scores);
    const auto got = device.Run(texts, /*all_rows=*/false);
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(got[i].size(), static_cast<size_t>(num_scores));
      for (size_t n = 0; n < got[i].size(); ++n)
        EXPECT_NEAR(got[i][n], expected[i][n], 0.05) << name << ", text " << i;
      EXPECT_EQ(device.Run({texts[i]}, /*all_rows=*/false)[0], got[i]) << name;
    }
  }
}

TEST(DeviceEncoder, HeavyTokenTypesTellTextsApart) {
  std::vector<Text> texts = SomeTexts({12, 20}, 60);
  OnDevice device("tiny-bert-score");
  const auto plain = device.Run(texts);
  texts[1].second = 8;
  const auto expected = OnCpu("tiny-bert-score", texts);
  const auto got = device.Run(texts);
  EXPECT_EQ(got[0], plain[0]);
  EXPECT_NE(got[1], plain[1]);
  EXPECT_GT(Cosine(got[1], expected[1]), 0.9998);
}

// Compares embeddings with those of transformers for the same token ids.
TEST(DeviceEncoder, HeavyEmbeddingsAreNearlyTransformers) {
  const auto text = ReadFile(DataFolder("tiny-modernbert") / "texts.json");
  ASSERT_TRUE(text);
  const auto cases = json::Parse(*text);
  ASSERT_TRUE(cases);
  OnDevice device("tiny-modernbert");
  for (const json::Value& golden : cases->as_array()) {
    std::vector<float> expected;
    for (const json::Value& number : golden.Find("cls")->as_array())
      expected.push_back(static_cast<float>(number.as_double()));
    const auto got = device.Run({{.ids = testing::Ids(*golden.Find("ids"))}}, /*all_rows=*/false);
    EXPECT_GT(Cosine(got[0], expected), 0.9998);
  }
}

TEST(DeviceEncoder, HeavyKeysAndValuesInFp8StayNear) {
  const std::vector<Text> texts = SomeTexts({33}, 60);
  const auto expected = OnCpu("tiny-bert", texts);
  OnDevice device("tiny-bert", 0, ElementType::kF8E4M3);
  EXPECT_GT(Cosine(device.Run(texts)[0], expected[0]), 0.998);
}

TEST(DeviceEncoder, HeavyAFailedStepIsToldAndTheNextOneRuns) {
  const std::vector<Text> texts = SomeTexts({7}, 60);
  OnDevice device("tiny-bert");
  const auto expected = device.Run(texts);
  device.device().FailNextLaunch();
  EXPECT_THROW(device.Run(texts), std::runtime_error);
  EXPECT_EQ(device.Run(texts), expected);
}

TEST(DeviceEncoder, WhatDevicesDoNotComputeIsRefused) {
  const EmulatedDevice device;
  ModelConfig config = ConfigOf("tiny-bert", 0);
  const auto refusal = [&](const ModelOptions& options) {
    const auto plan = PlanDeviceModel(config, options, device.info());
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(refusal(EncoderOptions(ElementType::kBF16)), "");
  EXPECT_THAT(refusal(EncoderOptions(ElementType::kF32)), ::testing::HasSubstr("bfloat16"));
  config.raw.Set("hidden_size", 8208);
  config.raw.Set("num_attention_heads", 57);
  EXPECT_THAT(refusal(EncoderOptions(ElementType::kBF16)), ::testing::HasSubstr("hidden_size"));
}

}  // namespace
}  // namespace sluice
