#include "planner/parallel_step.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr double kKiB = 1024;

StoredModel PublishedModel(std::string_view id) {
  return {*PublishedShape(id), FormatOfName(id), 1};
}

TEST(LinkTraffic, ALayerOfLlama70BGathers136KiBOfARow) {
  const ModelShape shape = *PublishedShape("Llama-3.3-70B");
  const LinkTraffic traffic = TrafficOf(shape, {.tensor = 8});
  // q has 64 x 128 numbers in BF16, followed by 8192 in F32, 28672 in BF16 and 8192 in F32.
  EXPECT_EQ(traffic.layer_bytes, 80 * (16 + 32 + 56 + 32) * kKiB);
  EXPECT_EQ(traffic.row_bytes, traffic.layer_bytes + (8192 + 128256) * 4);
  EXPECT_EQ(traffic.received_bytes, traffic.row_bytes * 7 / 8);
  EXPECT_EQ(traffic.num_exchanges, 4 * 80 + 2);
}

TEST(LinkTraffic, SquaresOfRowsThatAreNormedAsAWholeAreGatheredForIt) {
  const auto shape = ShapeOfConfig(
      *json::Parse(R"({"model_type": "olmo2", "num_hidden_layers": 16, "hidden_size": 2048,
                       "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 1000,
                       "intermediate_size": 8192})"),
      "olmo");
  ASSERT_TRUE(shape);
  const LinkTraffic traffic = TrafficOf(*shape, {.tensor = 2});
  EXPECT_EQ(traffic.layer_bytes, 16 * (2 * 2048 + 2 * 8192 + 8 * 2048 + 4 * (16 + 4)));
  EXPECT_EQ(traffic.num_exchanges, 6 * 16 + 2);
}

TEST(LinkTraffic, OneDeviceSendsNothing) {
  const LinkTraffic traffic = TrafficOf(*PublishedShape("Llama-3.3-70B"), {.engines = 8});
  EXPECT_EQ(traffic.row_bytes, 0);
  EXPECT_EQ(traffic.received_bytes, 0);
  EXPECT_EQ(traffic.num_exchanges, 0);
}

TEST(LinkTraffic, StagesHandOnTheResidual) {
  const LinkTraffic traffic = TrafficOf(*PublishedShape("Llama-3.3-70B"), {.stages = 4});
  EXPECT_EQ(traffic.received_bytes, 4 * 32 * kKiB);
  EXPECT_EQ(traffic.num_exchanges, 4);
}

TEST(LinkTraffic, OfExpertsThoseOfTheTokenAreGathered) {
  const ModelShape shape = *PublishedShape("Qwen3-30B-A3B");
  EXPECT_EQ(TrafficOf(shape, {.tensor = 2}).layer_bytes,
            48 * (4096 * 2 + 2048 * 4 + 8 * 768 * 2 + 2048 * 4));
}

TEST(ParallelStep, OnOneDeviceItIsTheStepOfOne) {
  const StoredModel model = PublishedModel("nvidia/Llama-3.3-70B-Instruct-FP8");
  const Accelerator& h200 = *FindAccelerator("H200");
  for (const double batch : {1, 64, 2000}) {
    const ParallelStep step = PlanParallelStep(model, h200, {}, 450e9, 1e-5, batch, 1024);
    EXPECT_DOUBLE_EQ(step.seconds(), DecodeStepSeconds(model, h200, batch, 1024));
    EXPECT_EQ(step.weight_bytes, ResidentBytes(model));
  }
}

TEST(ParallelStep, PartsAreDividedAndLinksAdded) {
  const StoredModel model = PublishedModel("nvidia/Llama-3.3-70B-Instruct-FP8");
  const Accelerator& h200 = *FindAccelerator("H200");
  const ParallelStep one = PlanParallelStep(model, h200, {}, 450e9, 1e-5, 64, 1024);
  const ParallelStep eight = PlanParallelStep(model, h200, {.tensor = 8}, 450e9, 1e-5, 64, 1024);
  EXPECT_DOUBLE_EQ(eight.weight_bytes, one.weight_bytes / 8);
  EXPECT_DOUBLE_EQ(eight.memory_seconds(), one.memory_seconds() / 8);
  EXPECT_DOUBLE_EQ(eight.flop_seconds, one.flop_seconds / 8);
  EXPECT_NEAR(eight.link_wait_seconds, 322e-5, 1e-9);
  EXPECT_NEAR(eight.link_bytes_seconds, 64 * (80 * 136 * kKiB + 136448 * 4) * 7 / 8 / 450e9, 1e-9);
  EXPECT_STREQ(one.bound(), "memory");
  EXPECT_STREQ(eight.bound(), "link latency");
  EXPECT_GT(eight.most_sequences, 8 * one.most_sequences);
  // If there are more ranks than KV heads, several ranks have copies of the same head.
  const ParallelStep sixteen = PlanParallelStep(model, h200, {.tensor = 16}, 450e9, 1e-5, 64, 1024);
  EXPECT_DOUBLE_EQ(sixteen.kv_token_bytes, eight.kv_token_bytes);
}

TEST(ParallelStep, StagesTakeTurnsAndEnginesDivideTheSequences) {
  const StoredModel model = PublishedModel("nvidia/Llama-3.3-70B-Instruct-FP8");
  const Accelerator& h200 = *FindAccelerator("H200");
  const ParallelStep one = PlanParallelStep(model, h200, {}, 450e9, 0, 64, 1024);
  const ParallelStep stages = PlanParallelStep(model, h200, {.stages = 4}, 450e9, 0, 64, 1024);
  EXPECT_DOUBLE_EQ(stages.memory_seconds(), one.memory_seconds());
  EXPECT_LT(stages.weight_bytes, one.weight_bytes / 3);
  const ParallelStep engines = PlanParallelStep(model, h200, {.engines = 4}, 450e9, 0, 64, 1024);
  EXPECT_EQ(engines.num_sequences, 16);
  EXPECT_DOUBLE_EQ(engines.weight_seconds, one.weight_seconds);
  EXPECT_DOUBLE_EQ(engines.kv_seconds, one.kv_seconds / 4);
  EXPECT_EQ(engines.link_seconds(), 0);
}

}  // namespace
}  // namespace sluice
