#include <gtest/gtest.h>

#include "planner/accelerators.h"
#include "planner/estimate.h"
#include "planner/model_shape.h"
#include "planner/weight_format.h"

namespace sluice {
namespace {

StoredModel Stored(std::string_view id, int64_t kv_element_bytes = 1) {
  return {*PublishedShape(id), FormatOfName(id), kv_element_bytes};
}

const Accelerator& On(std::string_view name) {
  return *FindAccelerator(name);
}

double TokensPerSecond(const StoredModel& model, std::string_view accelerator, double batch) {
  return batch / DecodeStepSeconds(model, On(accelerator), batch, 1024);
}

TEST(ModelShape, Llama70BHas70Point6BillionWeights) {
  const ModelShape shape = *PublishedShape("nvidia/Llama-3.3-70B-Instruct-FP8");
  EXPECT_NEAR(static_cast<double>(shape.LinearWeights()), 68.451e9, 1e6);
  EXPECT_NEAR(static_cast<double>(shape.TotalWeights()), 70.554e9, 2e6);
}

TEST(ModelShape, ScoutHas108BillionWeightsAnd16Active) {
  const ModelShape shape = *PublishedShape("nvidia/Llama-4-Scout-17B-16E-Instruct-FP4");
  EXPECT_NEAR(static_cast<double>(shape.TotalWeights()), 107.8e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(shape.ActiveWeights() + shape.EmbeddingWeights()), 16.1e9, 0.1e9);
}

TEST(ModelShape, ConfigGivesTheSameAsTheTable) {
  const auto config = json::Parse(
      R"({"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
          "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672,
          "max_position_embeddings": 131072})");
  const auto shape = ShapeOfConfig(*config, "x");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->TotalWeights(), PublishedShape("Llama-3.3-70B")->TotalWeights());
  EXPECT_EQ(shape->max_positions, 131072);
}

TEST(ModelShape, ConfigOfLlama4GivesTheSameAsTheTable) {
  const auto config = json::Parse(
      R"({"text_config": {"num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
          "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048,
          "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16,
          "num_experts_per_tok": 1, "interleave_moe_layer_step": 1}})");
  const auto shape = ShapeOfConfig(*config, "x");
  ASSERT_TRUE(shape) << shape.error().message;
  EXPECT_EQ(shape->TotalWeights(), PublishedShape("llama-4-scout")->TotalWeights());
}

TEST(ModelShape, MissingDimensionIsNamed) {
  const auto shape = ShapeOfConfig(*json::Parse(R"({"num_hidden_layers": 2})"), "x");
  ASSERT_FALSE(shape);
  EXPECT_NE(shape.error().message.find("hidden_size"), std::string::npos);
  EXPECT_FALSE(PublishedShape("someone/unheard-of-9B"));
}

TEST(WeightFormat, ComesFromTheName) {
  EXPECT_EQ(FormatOfName("nvidia/Llama-3.3-70B-Instruct-FP4"), WeightFormat::kNvfp4);
  EXPECT_EQ(FormatOfName("amd/Llama-3.3-70B-Instruct-MXFP4-Preview"), WeightFormat::kMxfp4);
  EXPECT_EQ(FormatOfName("amd/Llama-3.3-70B-Instruct-FP8-KV/"), WeightFormat::kFp8);
  EXPECT_EQ(FormatOfName("meta-llama/Llama-3.3-70B-Instruct"), WeightFormat::kBf16);
  EXPECT_EQ(FormatOfName("Qwen/Qwen3-8B-AWQ"), WeightFormat::kInt4);
  EXPECT_EQ(FormatOfName("RedHatAI/Qwen3-8B-quantized.w4a16"), WeightFormat::kInt4);
}

TEST(Estimate, ResidentBytesOfTheRecipesModels) {
  EXPECT_NEAR(ResidentBytes(Stored("Llama-3.3-70B-FP8")), 72.65e9, 0.01e9);
  EXPECT_NEAR(ResidentBytes(Stored("Llama-3.3-70B-FP4")), 42.71e9, 0.01e9);
  EXPECT_NEAR(ResidentBytes(Stored("Llama-3.3-70B-MXFP4")), 40.57e9, 0.01e9);
  EXPECT_NEAR(ResidentBytes(Stored("Llama-3.3-70B")), 141.1e9, 0.1e9);
  EXPECT_NEAR(ResidentBytes(Stored("Llama-4-Scout-FP8")), 109.8e9, 0.1e9);
  EXPECT_NEAR(ResidentBytes(Stored("Llama-4-Scout-FP4")), 63.6e9, 0.1e9);
}

TEST(Estimate, KeysAndValues) {
  EXPECT_EQ(KvBytesPerToken(Stored("Llama-3.3-70B-FP8")), 163840);
  EXPECT_EQ(KvBytesPerToken(Stored("Llama-3.3-70B-FP8", 2)), 327680);
  EXPECT_EQ(KvBytesPerToken(Stored("Llama-4-Scout-FP8")), 98304);
  EXPECT_NEAR(KvCacheBytes(Stored("Llama-3.3-70B-FP8"), On("H200"), 0.9), 67.0e9, 0.1e9);
  EXPECT_NEAR(KvCacheBytes(Stored("Llama-3.3-70B-FP8"), On("DGX Spark"), 0.9), 39.9e9, 0.1e9);
  EXPECT_EQ(KvCacheBytes(Stored("Llama-3.3-70B"), On("H100"), 0.9), 0);
}

TEST(Estimate, DecodeLimits) {
  EXPECT_NEAR(TokensPerSecond(Stored("Llama-3.3-70B-FP8"), "H200", 1), 67.9, 0.1);
  EXPECT_NEAR(TokensPerSecond(Stored("Llama-3.3-70B-FP8"), "H200", 64), 3779, 4);
  EXPECT_NEAR(TokensPerSecond(Stored("Llama-3.3-70B-FP4"), "B200", 8), 1526, 3);
  EXPECT_NEAR(TokensPerSecond(Stored("Llama-3.3-70B-FP8"), "GB10", 1), 3.9, 0.05);
  EXPECT_NEAR(TokensPerSecond(Stored("Llama-4-Scout-FP8"), "B200", 1), 463, 3);
}

TEST(Estimate, PrefillLimits) {
  EXPECT_NEAR(PrefillSeconds(Stored("Llama-3.3-70B-FP8"), On("H200"), 1024), 0.0715, 0.0002);
  EXPECT_NEAR(PrefillSeconds(Stored("Llama-3.3-70B-FP8"), On("H200"), 8192), 0.611, 0.001);
}

TEST(Estimate, EightThousandTokensAt64DoNotFitOneH200) {
  const WorkloadEstimate estimate =
      EstimateWorkload(Stored("Llama-3.3-70B-FP8"), On("H200"), 64, 8192, 1024, 0.9);
  EXPECT_GE(estimate.num_resident, 44);
  EXPECT_LE(estimate.num_resident, 47);
  EXPECT_NEAR(estimate.serial_tokens_per_second, 824, 10);
}

}  // namespace
}  // namespace sluice
